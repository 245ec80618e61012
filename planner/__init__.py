"""Planning: named pure passes, then segments and an arena, turn a graph into a program."""
