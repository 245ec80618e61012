"""Proofs of the integer core: `python -m tests.prove`.

Straight-line laws hold for all words that meet their premise because at least two SMT solvers say unsat to every query;
there is no certificate. The plan check is proved by Why3 and z3, the theorems on sums, barriers and interleavings by
the kernel of Coq without axioms.

Trusted, besides those programs: the readers of terms (`term`, `smt`, `integers`, `polynomial`), pycparser, that Why3
reads Python as Python does, the compilers, that a dot instruction is its model, that callers meet the premises and
arrays are as long as stated, and, for barriers and interleavings, that all workgroups run and a barrier orders memory.
Sums of floats are outside.
"""
