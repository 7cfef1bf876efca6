"""Columns that the tables of recorded events share."""

from __future__ import annotations

from stepscope.schema.table import Column

TRACE = Column(name="trace", type="BIGINT", doc="Which recording; see `traces`.")
EVENT_ID = Column(
    name="id",
    type="BIGINT",
    doc=("Place of the event in its file, counted from 0: unique within the trace."),
)
TRACK = Column(name="track", type="INTEGER", doc="Host thread or device stream; see `tracks`.")
NAME = Column(name="name", type="VARCHAR", doc="Its name.")
START_NS = Column(name="start_ns", type="BIGINT", unit="epoch_ns", doc="When it began.")
DURATION_NS = Column(
    name="duration_ns", type="BIGINT", unit="ns", stored="DOUBLE", doc="How long it took."
)
ARGS = Column(
    name="args",
    type="VARCHAR",
    nullable=True,
    doc="Everything else the file said of it, as a JSON object.",
)
GRAPH_LINK = (
    Column(name="graph", type="BIGINT", nullable=True, doc="Graph whose replay ran it."),
    Column(name="graph_node", type="BIGINT", nullable=True, doc="Its node in that graph."),
    Column(
        name="captured_operator",
        type="BIGINT",
        nullable=True,
        doc="Operator whose launch was captured as that node, where the capture is in the same "
        "recording.",
    ),
)
LAUNCH_LINK = (
    Column(
        name="launch",
        type="BIGINT",
        nullable=True,
        doc=(
            "Runtime call that launched it; null for work launched before the window "
            "(carry-over) and for work whose launch the file lacks."
        ),
    ),
    Column(
        name="operator",
        type="BIGINT",
        nullable=True,
        doc="Operator that made that call.",
    ),
    Column(
        name="correlation",
        type="BIGINT",
        nullable=True,
        doc="The recorder's number that links it to its launch.",
    ),
    Column(
        name="carry_over",
        type="SMALLINT",
        doc=(
            "1 when it was launched before the window: it has no launch and starts before"
            " any linked work of its device could."
        ),
    ),
)
