"""Fixes of causes, and the step that each is predicted to leave.

Belongs here: advice and what-if. Does not: evidence for a cause (`causes`).
"""
