(* A program checked on a symbolic arena leaves the graph's values in memory. The graph gives every value its bytes:
   byte k of value v is `meaning v k`. A call is declared to read certain bytes, each as byte k of some value, and to
   write others; its kernel computes its op if, whenever what it reads means what it should, so does what it writes,
   and nothing else changes. The symbolic arena remembers which byte of which value an address holds. *)
From Coq Require Import List.
Import ListNotations.

Section Symbolic.
  Variables Address Value Byte : Type.
  Variable address_eq : forall a b : Address, {a = b} + {a <> b}.
  Variable value_eq : forall v w : Value, {v = w} + {v <> w}.
  Variable meaning : Value -> nat -> Byte.

  Definition memory := Address -> Byte.
  Definition place := (Address * (Value * nat))%type.
  Definition means (m : memory) (p : place) := m (fst p) = meaning (fst (snd p)) (snd (snd p)).

  Record call := Call {
    reads : list place;
    writes : list place;
    effect : memory -> memory;
    keeps : forall m a, ~ In a (map fst writes) -> effect m a = m a;
    computes : forall m, (forall p, In p reads -> means m p) -> forall p, In p writes -> means (effect m) p }.

  (* The symbolic arena: what the last write to an address was said to be. *)
  Definition arena := Address -> option (Value * nat).
  Definition byte_eq (b c : Value * nat) : {b = c} + {b <> c}.
  Proof. decide equality. apply PeanoNat.Nat.eq_dec. Defined.

  Definition put (s : arena) (p : place) : arena := fun a => if address_eq a (fst p) then Some (snd p) else s a.
  Definition store (s : arena) (ps : list place) : arena := fold_left put ps s.
  Definition holds (s : arena) (p : place) : bool :=
    match s (fst p) with Some b => if byte_eq b (snd p) then true else false | None => false end.

  Fixpoint check (cs : list call) (s : arena) : option arena :=
    match cs with
    | [] => Some s
    | c :: rest => if forallb (holds s) (reads c) then check rest (store s (writes c)) else None
    end.
  Fixpoint run (cs : list call) (m : memory) : memory :=
    match cs with [] => m | c :: rest => run rest (effect c m) end.

  Definition agrees (s : arena) (m : memory) := forall a b, s a = Some b -> means m (a, b).

  Lemma store_last : forall ps s a b, store s ps a = Some b -> In (a, b) ps \/ (~ In a (map fst ps) /\ s a = Some b).
  Proof.
    induction ps as [|p ps IH]; simpl; intros s a b H; [right; split; [tauto|exact H]|].
    destruct (IH _ _ _ H) as [I|[N E]]; [tauto|]. unfold put in E.
    destruct (address_eq a (fst p)) as [A|A].
    - left. left. destruct p. simpl in *. congruence.
    - right. split; [|exact E]. intros [F|F]; [congruence|exact (N F)].
  Qed.

  Lemma holds_means s m p : agrees s m -> holds s p = true -> means m p.
  Proof.
    unfold holds. intros A. destruct p as [a b]. simpl. destruct (s a) as [c|] eqn:E; [|discriminate].
    destruct (byte_eq c b); [|discriminate]. subst. intros _. apply A. exact E.
  Qed.

  Lemma call_agrees c s m : agrees s m -> forallb (holds s) (reads c) = true -> agrees (store s (writes c)) (effect c m).
  Proof.
    intros A H a b E. rewrite forallb_forall in H. destruct (store_last _ _ _ _ E) as [I|[N F]].
    - apply computes; [|exact I]. intros p P. apply (holds_means s); [exact A|]. apply H. exact P.
    - unfold means. simpl. rewrite keeps by exact N. apply (A a b F).
  Qed.

  (* Accepted: whatever the arena is said to hold after the last call, memory holds. *)
  Theorem checked_program_computes : forall cs s t m,
    check cs s = Some t -> agrees s m -> agrees t (run cs m).
  Proof.
    induction cs as [|c cs IH]; simpl; intros s t m C A; [injection C as ->; exact A|].
    destruct (forallb (holds s) (reads c)) eqn:H; [|discriminate].
    apply (IH _ _ _ C). apply call_agrees; assumption.
  Qed.
End Symbolic.

Print Assumptions checked_program_computes.
