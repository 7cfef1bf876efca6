"""Kineto and Chrome traces, read into the tables of `schema`."""
