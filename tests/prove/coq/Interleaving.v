(* Workgroups of a segment run side by side. If no step of one touches what a step of another writes, every
   interleaving that keeps each workgroup's own order leaves the same memory; so do whole runs of segments. *)
From Coq Require Import List Bool.
Import ListNotations.

Section Interleaving.
  Variables Address Value Group : Type.
  Variable group_eq : forall v w : Group, {v = w} + {v <> w}.

  Definition memory := Address -> Value.
  Definition same (m n : memory) := forall a, m a = n a.

  (* A step writes only where it says, and what it writes depends only on what it says it reads. *)
  Record step := Step {
    owner : Group;
    reads : Address -> bool;
    writes : Address -> bool;
    effect : memory -> memory;
    keeps : forall m a, writes a = false -> effect m a = m a;
    depends : forall m n, (forall a, reads a = true -> m a = n a) ->
      forall a, writes a = true -> effect m a = effect n a }.

  Definition free s t := forall a, writes s a = true -> reads t a = false /\ writes t a = false.
  Definition independent s t := free s t /\ free t s.

  Fixpoint run (l : list step) (m : memory) : memory :=
    match l with [] => m | s :: rest => run rest (effect s m) end.

  Lemma same_sym m n : same m n -> same n m.
  Proof. intros H a. symmetry. apply H. Qed.
  Lemma same_trans m n o : same m n -> same n o -> same m o.
  Proof. intros H K a. rewrite H. apply K. Qed.

  Lemma effect_same s m n : same m n -> same (effect s m) (effect s n).
  Proof.
    intros H a. destruct (writes s a) eqn:W.
    - apply depends; [intros b _; apply H|assumption].
    - rewrite !keeps by assumption. apply H.
  Qed.
  Lemma run_same l : forall m n, same m n -> same (run l m) (run l n).
  Proof. induction l as [|s l IH]; simpl; intros m n H; [assumption|]. apply IH, effect_same, H. Qed.
  Lemma run_app l k : forall m, run (l ++ k) m = run k (run l m).
  Proof. induction l as [|s l IH]; simpl; intros m; [reflexivity|apply IH]. Qed.

  (* A step sees nothing of a step that is free of it. *)
  Lemma unseen s t m : free s t -> forall a, writes t a = true -> effect t (effect s m) a = effect t m a.
  Proof.
    intros F a W. apply depends; [|assumption]. intros b R. apply keeps.
    destruct (writes s b) eqn:E; [|reflexivity]. destruct (F b E). congruence.
  Qed.

  Lemma swap s t m : independent s t -> same (effect t (effect s m)) (effect s (effect t m)).
  Proof.
    intros [F B] a. destruct (writes t a) eqn:T.
    - rewrite (unseen s t m F a T). destruct (B a T) as [_ S]. rewrite (keeps s _ _ S). reflexivity.
    - rewrite (keeps t _ _ T). destruct (writes s a) eqn:S.
      + rewrite (unseen t s m B a S). reflexivity.
      + rewrite !keeps by assumption. reflexivity.
  Qed.

  (* A step may run before a list it is independent of. *)
  Lemma pull s : forall p m, (forall t, In t p -> independent t s) -> same (effect s (run p m)) (run p (effect s m)).
  Proof.
    induction p as [|t p IH]; simpl; intros m H; [intro; reflexivity|].
    apply same_trans with (run p (effect s (effect t m))).
    - apply IH. intros u U. apply H. right. assumption.
    - apply run_same, swap, H. left. reflexivity.
  Qed.

  Definition mine w s := if group_eq (owner s) w then true else false.
  Definition own w l := filter (mine w) l.

  Lemma mine_true w s : mine w s = true <-> owner s = w.
  Proof. unfold mine. destruct (group_eq (owner s) w); split; congruence. Qed.

  Lemma own_app w l k : own w (l ++ k) = own w l ++ own w k.
  Proof. apply filter_app. Qed.

  (* The first step of a group in a list: nothing before it is the group's. *)
  Lemma first_of w s rest : forall l, own w l = s :: rest ->
    exists p q, l = p ++ s :: q /\ own w q = rest /\ own w p = [].
  Proof.
    induction l as [|t l IH]; simpl; [discriminate|]. destruct (mine w t) eqn:E; intros H.
    - injection H as -> H. exists [], l. auto.
    - destruct (IH H) as (p & q & -> & Q & P). exists (t :: p), q. simpl. rewrite E. auto.
  Qed.

  Lemma own_none w p t : own w p = [] -> In t p -> owner t <> w.
  Proof.
    intros P I E. assert (In t (own w p)) as A by (apply filter_In; split; [assumption|apply mine_true; assumption]).
    rewrite P in A. destruct A.
  Qed.

  Definition interleavings l k := forall w, own w l = own w k.
  Definition race_free l := forall s t, In s l -> In t l -> owner s <> owner t -> independent s t.

  Lemma in_own t l : In t l <-> In t (own (owner t) l).
  Proof. unfold own. rewrite filter_In, mine_true. tauto. Qed.
  Lemma interleavings_in l k t : interleavings l k -> In t k -> In t l.
  Proof. intros H I. rewrite in_own, H, <- in_own. assumption. Qed.

  Theorem segment_result : forall l k m, interleavings l k -> race_free l -> same (run l m) (run k m).
  Proof.
    induction l as [|s l IH]; intros k m H R.
    - destruct k as [|t k]; [intro; reflexivity|].
      exfalso. exact (interleavings_in [] (t :: k) t H (or_introl eq_refl)).
    - pose proof (H (owner s)) as E. simpl in E. rewrite (proj2 (mine_true _ s) eq_refl) in E. symmetry in E.
      destruct (first_of _ _ _ _ E) as (p & q & -> & Q & P).
      rewrite run_app. simpl. apply same_sym. apply same_trans with (run q (run p (effect s m))).
      + apply run_same, pull. intros t T. apply R.
        * apply (interleavings_in _ _ _ H). apply in_or_app. left. assumption.
        * left. reflexivity.
        * exact (own_none _ _ _ P T).
      + rewrite <- run_app. apply same_sym. apply IH.
        * intros w. specialize (H w). rewrite own_app in *. simpl in H. destruct (mine w s) eqn:W; [|assumption].
          apply mine_true in W. subst w. rewrite P in *. simpl in *. injection H as H. assumption.
        * intros a b A B. apply R; right; assumption.
  Qed.

  (* Barriers between segments: each runs after the one before it. *)
  Theorem schedule_result : forall ls ks, Forall2 (fun l k => interleavings l k /\ race_free l) ls ks ->
    forall m, same (run (concat ls) m) (run (concat ks) m).
  Proof.
    induction 1 as [|l k ls ks [H R] _ IH]; intros m; simpl; [intro; reflexivity|].
    rewrite !run_app. apply same_trans with (run (concat ls) (run k m)); [|apply IH].
    apply run_same, segment_result; assumption.
  Qed.
End Interleaving.

Print Assumptions segment_result.
Print Assumptions schedule_result.
