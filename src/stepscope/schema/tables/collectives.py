"""Communication between ranks."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, NAME, TRACE
from stepscope.schema.table import Column, Table

COLLECTIVES = Table(
    name="collectives",
    doc=(
        "One row per event that describes a collective: the operator that asked for it, and "
        "the kernel that carried it out."
    ),
    key=("trace", "id"),
    columns=(
        TRACE,
        Column(name="id", type="BIGINT", doc="The operator or kernel so described."),
        Column(
            name="on_device",
            type="SMALLINT",
            doc="1 when that is a kernel, 0 when it is an operator.",
        ),
        NAME,
        Column(
            name="dtype",
            type="VARCHAR",
            nullable=True,
            doc="Element type as the recorder writes it.",
        ),
        Column(
            name="in_elements",
            type="BIGINT",
            unit="count",
            nullable=True,
            doc="Elements sent by this rank.",
        ),
        Column(
            name="out_elements",
            type="BIGINT",
            unit="count",
            nullable=True,
            doc="Elements received by this rank.",
        ),
        Column(name="group", type="VARCHAR", nullable=True, doc="Name of the process group."),
        Column(
            name="group_description", type="VARCHAR", nullable=True, doc="What the group is for."
        ),
        Column(name="group_size", type="INTEGER", unit="count", nullable=True, doc="Ranks in it."),
        Column(
            name="group_ranks",
            type="VARCHAR",
            nullable=True,
            doc="Its ranks as the recorder writes them; may be cut short.",
        ),
        Column(
            name="sequence",
            type="BIGINT",
            nullable=True,
            doc="Number of the collective within its group.",
        ),
        Column(
            name="peer_source",
            type="INTEGER",
            nullable=True,
            doc="Sending rank of a point-to-point operation.",
        ),
        Column(
            name="peer_destination",
            type="INTEGER",
            nullable=True,
            doc="Receiving rank of a point-to-point operation.",
        ),
        Column(name="in_split", type="VARCHAR", nullable=True, doc="Sizes sent to each rank."),
        Column(
            name="out_split", type="VARCHAR", nullable=True, doc="Sizes received from each rank."
        ),
        ARGS,
    ),
)
