"""Adapters: one package per framework, each importing its framework only when installed."""
