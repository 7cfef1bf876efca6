"""Declarations of tables, one per file."""
