"""Preflight gates: what must be proven, how a proof is recorded, and when it counts.

Rooms: ``verdict`` (three-valued logic), ``catalog`` (which gates exist and which a spec
requires), ``recorder`` (what a gate measures), ``binding`` (the content a proof is bound to),
``evidence`` (the append-only files), ``standing`` (whether a recorded proof counts now).
"""
