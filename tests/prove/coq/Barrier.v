(* A grid barrier made of one counter that only grows: any number G of workgroups that all run, N barriers.

   A workgroup's progress is one number t: it has left t/2 barriers, and if t is odd it has arrived at the next one
   and waits there. Arriving adds 1 to the counter; leaving barrier p needs the counter at (p+1)*G. *)
From Coq Require Import Arith Lia Bool Nat.

Section Barrier.
  Variables G N : nat.

  Record state := State { progress : nat -> nat; counter : nat }.

  Definition left_behind t := t / 2.          (* barriers left *)
  Definition arrived t := (t + 1) / 2.        (* barriers arrived at *)
  Definition advance (f : nat -> nat) w := fun v => if v =? w then S (f v) else f v.

  Inductive step : state -> state -> Prop :=
  | arrive s w p : w < G -> p < N -> progress s w = 2 * p ->
      step s (State (advance (progress s) w) (S (counter s)))
  | leave s w p : w < G -> progress s w = 2 * p + 1 -> (p + 1) * G <= counter s ->
      step s (State (advance (progress s) w) (counter s)).

  Definition start := State (fun _ => 0) 0.

  Lemma left_even p : left_behind (2 * p) = p.
  Proof. unfold left_behind. rewrite Nat.mul_comm. apply Nat.div_mul. lia. Qed.
  Lemma left_odd p : left_behind (2 * p + 1) = p.
  Proof. unfold left_behind. symmetry. apply Nat.div_unique with 1; lia. Qed.
  Lemma arrived_even p : arrived (2 * p) = p.
  Proof. exact (left_odd p). Qed.
  Lemma arrived_odd p : arrived (2 * p + 1) = p + 1.
  Proof. unfold arrived. symmetry. apply Nat.div_unique with 0; lia. Qed.
  Lemma parity t : (exists p, t = 2 * p) \/ (exists p, t = 2 * p + 1).
  Proof. destruct (Nat.Even_or_Odd t) as [[p H]|[p H]]; eauto. Qed.

  Fixpoint sum (f : nat -> nat) n := match n with O => 0 | S k => sum f k + f k end.

  Lemma sum_same f g n : (forall v, v < n -> f v = g v) -> sum f n = sum g n.
  Proof. induction n; simpl; intros H; [reflexivity|]. rewrite H by lia. rewrite IHn; auto. Qed.

  (* Changing one summand changes the sum by as much. *)
  Lemma sum_change f g w n : w < n -> (forall v, v <> w -> f v = g v) -> sum f n + g w = sum g n + f w.
  Proof.
    induction n; simpl; intros L H; [lia|].
    destruct (Nat.eq_dec w n) as [->|D].
    - rewrite (sum_same f g n); [lia|]. intros v V. apply H. lia.
    - rewrite (H n) by lia. assert (w < n) as L' by lia. specialize (IHn L' H). lia.
  Qed.

  Lemma sum_most f k n : (forall v, v < n -> f v <= k) -> sum f n <= n * k.
  Proof.
    induction n; simpl; intros H; [lia|]. specialize (H n ltac:(lia)) as Hn.
    assert (sum f n <= n * k) by (apply IHn; intros; apply H; lia). lia.
  Qed.

  (* A sum of numbers at most k that reaches n*k has only ks in it. *)
  Lemma sum_full f k n : (forall v, v < n -> f v <= k) -> n * k <= sum f n -> forall v, v < n -> f v = k.
  Proof.
    induction n; simpl; intros H E v V; [lia|].
    specialize (H n ltac:(lia)) as Hn. assert (sum f n <= n * k) by (apply sum_most; intros; apply H; lia).
    destruct (Nat.eq_dec v n) as [->|D]; [lia|]. apply IHn; try lia. intros; apply H; lia.
  Qed.

  (* The counter counts arrivals, and nobody has left a barrier that somebody has not arrived at. *)
  Definition invariant s := counter s = sum (fun v => arrived (progress s v)) G /\
    forall v w, v < G -> w < G -> left_behind (progress s v) <= arrived (progress s w).

  Theorem start_invariant : invariant start.
  Proof.
    split; simpl; [|intros; unfold left_behind; simpl; lia].
    induction G; simpl; [reflexivity|]. rewrite <- IHn. reflexivity.
  Qed.

  Lemma arrived_near t : arrived t <= left_behind t + 1.
  Proof.
    destruct (parity t) as [[p ->]|[p ->]];
      rewrite ?arrived_even, ?left_even, ?arrived_odd, ?left_odd; lia.
  Qed.

  (* Safety: when a workgroup may leave barrier p, every workgroup has arrived at it. *)
  Theorem nobody_leaves_early s w p : invariant s -> w < G -> progress s w = 2 * p + 1 ->
    (p + 1) * G <= counter s -> forall v, v < G -> p + 1 <= arrived (progress s v).
  Proof.
    intros [C L] W P E v V. destruct (le_lt_dec (p + 1) (arrived (progress s v))) as [|Late]; [assumption|exfalso].
    assert (forall u, u < G -> arrived (progress s u) <= p + 1) as Most.
    { intros u U. pose proof (L u v U V). pose proof (arrived_near (progress s u)). lia. }
    rewrite C in E. pose proof (sum_full _ (p + 1) G Most ltac:(lia) v V). simpl in *. lia.
  Qed.

  Theorem step_invariant s s' : invariant s -> step s s' -> invariant s'.
  Proof.
    intros I H. pose proof I as [C L]. destruct H as [s w p W B P | s w p W P E]; split; simpl.
    - assert (arrived (S (progress s w)) = arrived (progress s w) + 1) as Up.
      { rewrite P. replace (S (2 * p)) with (2 * p + 1) by lia. rewrite arrived_odd, arrived_even. reflexivity. }
      pose proof (sum_change (fun v => arrived (advance (progress s) w v))
        (fun v => arrived (progress s v)) w G W) as D.
      simpl in D. unfold advance in D at 3. rewrite Nat.eqb_refl, Up in D.
      assert (forall v, v <> w -> arrived (advance (progress s) w v) = arrived (progress s v)) as Other.
      { intros v V. unfold advance. destruct (Nat.eqb_spec v w); [contradiction|reflexivity]. }
      specialize (D Other). lia.
    - intros v u V U. pose proof (L v u V U) as Vu. unfold advance.
      destruct (Nat.eqb_spec v w) as [->|_]; destruct (Nat.eqb_spec u w) as [->|_]; try assumption.
      + rewrite P. replace (S (2 * p)) with (2 * p + 1) by lia. rewrite left_odd, arrived_odd. lia.
      + rewrite P in *. replace (S (2 * p)) with (2 * p + 1) by lia. rewrite left_odd. rewrite left_even in Vu. lia.
      + rewrite P in Vu. rewrite arrived_even in Vu. rewrite P.
        replace (S (2 * p)) with (2 * p + 1) by lia. rewrite arrived_odd. lia.
    - rewrite C. apply sum_same. intros v V. unfold advance. destruct (Nat.eqb_spec v w) as [->|_]; [|reflexivity].
      rewrite P. replace (S (2 * p + 1)) with (2 * (p + 1)) by lia. rewrite arrived_odd, arrived_even. reflexivity.
    - intros v u V U. pose proof (nobody_leaves_early s w p I W P E u U) as Here. pose proof (L v u V U) as Vu.
      assert (arrived (advance (progress s) w u) = arrived (progress s u)) as Same.
      { unfold advance. destruct (Nat.eqb_spec u w) as [->|_]; [|reflexivity].
        rewrite P. replace (S (2 * p + 1)) with (2 * (p + 1)) by lia. rewrite arrived_odd, arrived_even. reflexivity. }
      rewrite Same. unfold advance. destruct (Nat.eqb_spec v w) as [->|_]; [|assumption].
      rewrite P. replace (S (2 * p + 1)) with (2 * (p + 1)) by lia. rewrite left_even. assumption.
  Qed.

  (* The lowest progress of the first n workgroups. *)
  Lemma lowest f n : 0 < n -> exists w, w < n /\ forall v, v < n -> f w <= f v.
  Proof.
    induction n as [|[|n] IH]; intros H; [lia| |].
    - exists 0. split; [lia|]. intros v V. replace v with 0 by lia. lia.
    - destruct IH as (w & W & Low); [lia|]. destruct (le_lt_dec (f w) (f (S n))).
      + exists w. split; [lia|]. intros v V. destruct (Nat.eq_dec v (S n)) as [->|]; [assumption|apply Low; lia].
      + exists (S n). split; [lia|]. intros v V. destruct (Nat.eq_dec v (S n)) as [->|]; [lia|].
        specialize (Low v ltac:(lia)). lia.
  Qed.

  Lemma sum_least f k n : (forall v, v < n -> k <= f v) -> n * k <= sum f n.
  Proof.
    induction n; simpl; intros H; [lia|]. specialize (H n ltac:(lia)) as Hn.
    assert (n * k <= sum f n) by (apply IHn; intros; apply H; lia). lia.
  Qed.

  (* No deadlock: while a workgroup has barriers left, some workgroup can move, namely a slowest one. *)
  Theorem somebody_moves s : invariant s -> (exists w, w < G /\ left_behind (progress s w) < N) -> exists s', step s s'.
  Proof.
    intros [C L] (w0 & W0 & Left). destruct (lowest (progress s) G) as (w & W & Low); [lia|].
    pose proof (Low w0 W0) as Lw. destruct (parity (progress s w)) as [[p P]|[p P]].
    - eexists. apply (arrive s w p); try assumption. rewrite P in Lw.
      apply Nat.le_lt_trans with (left_behind (progress s w0)); [|assumption].
      rewrite <- (left_even p). apply Nat.div_le_mono; lia.
    - eexists. apply (leave s w p); try assumption. rewrite C, Nat.mul_comm. apply sum_least. intros v V.
      pose proof (Low v V) as Lv. rewrite P in Lv. rewrite <- arrived_odd. unfold arrived. apply Nat.div_le_mono; lia.
  Qed.

  (* The counter never exceeds N*G: 32 bits suffice if N*G < 2^32. *)
  Definition in_run s := forall v, v < G -> arrived (progress s v) <= N.
  Theorem counter_bounded s : invariant s -> in_run s -> counter s <= G * N.
  Proof.
    intros [C _] R. rewrite C. apply sum_most. assumption.
  Qed.
  Theorem step_in_run s s' : in_run s -> step s s' -> in_run s'.
  Proof.
    intros R H v V. destruct H as [s w p W B P | s w p W P E]; simpl; unfold advance;
      destruct (Nat.eqb_spec v w) as [->|_]; try (apply R; assumption); rewrite P.
    - replace (S (2 * p)) with (2 * p + 1) by lia. rewrite arrived_odd. lia.
    - replace (S (2 * p + 1)) with (2 * (p + 1)) by lia. rewrite arrived_even.
      pose proof (R w W) as Rw. rewrite P, arrived_odd in Rw. assumption.
  Qed.
End Barrier.

Print Assumptions nobody_leaves_early.
Print Assumptions step_invariant.
Print Assumptions somebody_moves.
Print Assumptions counter_bounded.
