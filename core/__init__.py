"""The nouns that graphs, ops, planner and backends exchange."""
