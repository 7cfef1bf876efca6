"""Adapters: one package per framework, each importing its framework only when installed.

registry    which adapter is installed after which import
sampling    started by adapters with the first step
trainers    shared by the adapters of trainers: callbacks by class, modes, logged numbers
"""
