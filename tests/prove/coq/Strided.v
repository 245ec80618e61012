(* What 32 lanes add, lane l taking x[l], x[l+32], ..., is x[0] + ... + x[n-1], for every array and every n.

   The sums are those of core/ie_sums.py over the integers; modulo 2^32 the same holds because reduction is a ring
   map, and no index wraps while n < 2^30. A sum stops at its first index that is not below the end, or without fuel. *)
From Coq Require Import ZArith Lia.
Open Scope Z_scope.

Section Sums.
  Variable x : nat -> Z.

  Fixpoint sum_while (step fuel i hi : nat) (term : nat -> Z) : Z :=
    match fuel with
    | O => 0
    | S rest => if (i <? hi)%nat then term i + sum_while step rest (i + step)%nat hi term else 0
    end.
  Definition seq_sum fuel lo hi := sum_while 1 fuel lo hi x.
  Definition lane_sum fuel b hi := sum_while 32 fuel b hi x.
  Definition lanes_sum fuel lane n := sum_while 1 fuel lane 32 (fun l => lane_sum n l n).
  Definition strided_sum n := lanes_sum 32 0 n.

  (* Sum over k < count of f k, with no condition: the common ground. *)
  Fixpoint total (count : nat) (f : nat -> Z) : Z :=
    match count with O => 0 | S k => total k f + f k end.

  Lemma total_ext count f g : (forall k, (k < count)%nat -> f k = g k) -> total count f = total count g.
  Proof. induction count; simpl; intros H; [reflexivity|]. rewrite H by lia. rewrite IHcount; auto. Qed.

  Lemma total_add count f g : total count (fun k => f k + g k) = total count f + total count g.
  Proof. induction count; simpl; lia. Qed.

  Lemma total_zero count f : (forall k, (k < count)%nat -> f k = 0) -> total count f = 0.
  Proof. induction count; simpl; intros H; [reflexivity|]. rewrite H by lia. rewrite IHcount; auto. Qed.

  Lemma total_split a b f : total (a + b) f = total a f + total b (fun k => f (a + k)%nat).
  Proof.
    induction b; simpl; [rewrite Nat.add_0_r; lia|].
    rewrite Nat.add_succ_r. simpl. rewrite IHb. lia.
  Qed.

  (* With enough fuel, a step of one is a total. *)
  Lemma unit_step term : forall fuel lo hi, (hi <= lo + fuel)%nat ->
    sum_while 1 fuel lo hi term = total (hi - lo) (fun k => term (lo + k)%nat).
  Proof.
    induction fuel as [|fuel IH]; intros lo hi H; simpl.
    - replace (hi - lo)%nat with 0%nat by lia. reflexivity.
    - destruct (Nat.ltb_spec lo hi).
      + rewrite IH by lia. replace (hi - lo)%nat with (1 + (hi - (lo + 1)))%nat by lia.
        rewrite total_split. simpl. rewrite Nat.add_0_r. f_equal.
        apply total_ext. intros k _. f_equal. lia.
      + replace (hi - lo)%nat with 0%nat by lia. reflexivity.
  Qed.

  (* Outside the array everything counts as 0. *)
  Definition masked hi i := if (i <? hi)%nat then x i else 0.

  Lemma lane_step fuel b hi : lane_sum (S fuel) b hi = masked hi b + lane_sum fuel (b + 32)%nat hi.
  Proof.
    unfold lane_sum, masked. simpl. destruct (Nat.ltb_spec b hi); [reflexivity|].
    destruct fuel; simpl; [reflexivity|]. destruct (Nat.ltb_spec (b + 32)%nat hi); [lia|reflexivity].
  Qed.

  (* 32 neighbouring lanes cover the array from their first index on, window by window. *)
  Lemma window hi : forall fuel b, total 32 (fun l => lane_sum fuel (b + l)%nat hi) =
    total (32 * fuel) (fun k => masked hi (b + k)%nat).
  Proof.
    induction fuel as [|fuel IH]; intros b.
    - rewrite Nat.mul_0_r. apply total_zero. reflexivity.
    - rewrite (total_ext 32 _ (fun l => masked hi (b + l)%nat + lane_sum fuel (b + 32 + l)%nat hi)).
      + rewrite total_add, IH. replace (32 * S fuel)%nat with (32 + 32 * fuel)%nat by lia.
        rewrite total_split. f_equal. apply total_ext. intros k _. f_equal. lia.
      + intros k _. rewrite lane_step. f_equal. f_equal. lia.
  Qed.

  Lemma masked_total n : forall m, (n <= m)%nat -> total m (masked n) = total n x.
  Proof.
    intros m H. replace m with (n + (m - n))%nat by lia. rewrite total_split.
    rewrite (total_zero (m - n)).
    - rewrite Z.add_0_r. apply total_ext. intros k Hk. unfold masked. destruct (Nat.ltb_spec k n); [reflexivity|lia].
    - intros k _. unfold masked. destruct (Nat.ltb_spec (n + k) n); [lia|reflexivity].
  Qed.

  Theorem strided_is_sequential n : strided_sum n = seq_sum n 0 n.
  Proof.
    unfold strided_sum, lanes_sum, seq_sum. rewrite !unit_step by lia.
    replace (32 - 0)%nat with 32%nat by lia. replace (n - 0)%nat with n by lia.
    change (total 32 (fun k => lane_sum n (0 + k)%nat n) = total n (fun k => x (0 + k)%nat)).
    rewrite window. simpl (0 + _)%nat. rewrite masked_total by lia. reflexivity.
  Qed.

  (* One lane alone: what it takes, counted out. *)
  Theorem lane_takes fuel b hi : lane_sum fuel b hi = total fuel (fun k => masked hi (b + 32 * k)%nat).
  Proof.
    revert b. induction fuel as [|fuel IH]; intros b; [reflexivity|].
    rewrite lane_step, IH. replace (S fuel) with (1 + fuel)%nat by lia. rewrite total_split. simpl total at 2.
    rewrite Nat.add_0_r. f_equal. apply total_ext. intros k _. f_equal. lia.
  Qed.
End Sums.

Print Assumptions strided_is_sequential.
Print Assumptions lane_takes.
