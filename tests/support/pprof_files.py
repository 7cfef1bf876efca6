"""Files of pprof as the library of protobuf reads them.

Fields: https://github.com/google/pprof/blob/main/proto/profile.proto
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "perftools.profiles"
_MESSAGES = {
    "ValueType": "type=1 unit=2",
    "Label": "key=1 str=2 num=3 num_unit=4",
    "Sample": "location_id*=1:uint64 value*=2 label*=3:Label",
    "Line": "function_id=1:uint64 line=2",
    "Location": "id=1:uint64 mapping_id=2:uint64 address=3:uint64 line*=4:Line is_folded=5:bool",
    "Function": "id=1:uint64 name=2 system_name=3 filename=4 start_line=5",
    "Profile": "sample_type*=1:ValueType sample*=2:Sample location*=4:Location "
    "function*=5:Function string_table*=6:string time_nanos=9 duration_nanos=10 "
    "period_type=11:ValueType period=12 default_sample_type=14",
}
"""Fields without a type are int64; a star marks repeated ones."""


def _make_profile() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package=_PACKAGE)
    file.syntax = "proto3"
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            key, _, rest = text.partition("=")
            number, _, kind = rest.partition(":")
            field = message.field.add(name=key.rstrip("*"), number=int(number))
            field.label = field.LABEL_REPEATED if key.endswith("*") else field.LABEL_OPTIONAL
            if kind in _MESSAGES:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{(kind or 'int64').upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))


_Profile = _make_profile()
Stacks = dict[tuple[str, ...], int]


def read_pprof(path: Path) -> dict[tuple[str, str], Stacks]:
    """Return the weights of the stacks, outermost function first, by value type and profile."""
    profile = _Profile.FromString(gzip.decompress(path.read_bytes()))
    texts = profile.string_table
    assert texts[0] == ""
    assert {texts[kind.unit] for kind in profile.sample_type} == {"nanoseconds"}
    names = {f.id: (texts[f.name], texts[f.filename]) for f in profile.function}
    locations = {loc.id: [names[line.function_id] for line in loc.line] for loc in profile.location}
    kinds = [texts[kind.type] for kind in profile.sample_type]
    assert texts[profile.default_sample_type] in kinds
    profiles: dict[tuple[str, str], Stacks] = {}
    for sample in profile.sample:
        (label,) = sample.label
        assert texts[label.key] == "profile"
        assert len(sample.value) == len(kinds)
        stack = tuple(f for number in reversed(sample.location_id) for f, _ in locations[number])
        for kind, value in zip(kinds, sample.value, strict=True):
            if value:
                stacks = profiles.setdefault((kind, texts[label.str]), {})
                assert stack not in stacks
                stacks[stack] = value
    return profiles
