"""Operators, modules and annotations of traces, as trees and as tables.

Belongs here: time by name on the host. Does not: their work against peaks (`roofline`).
"""
