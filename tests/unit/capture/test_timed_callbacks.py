"""Callbacks of trainers: their calls are recorded by class, and reach them as without recording."""

from __future__ import annotations

from tests.conftest import Spool


def test_methods_of_all_kinds_get_their_arguments(spool: Spool) -> None:
    spool.run(
        """
        from functools import partialmethod
        from stepscope.capture.frameworks.trainers import time_methods

        class Base:
            def on_start(self, *args): pass
            on_static = on_class = on_object = on_part = on_start

        class Recorder:
            def __call__(self, *args):
                return args

        class Mine(Base):
            def on_start(self, *args):
                return self, args
            @staticmethod
            def on_static(*args):
                return args
            @classmethod
            def on_class(cls, *args):
                return cls, args
            on_object = Recorder()
            on_part = partialmethod(on_start, 0)

        mine = Mine()
        hooks = [name for name in vars(Base) if name.startswith("on_")]
        for _ in range(2):
            time_methods(mine, Base, hooks)
        assert mine.on_start(1) == (mine, (1,))
        assert mine.on_static(1) == (1,)
        assert mine.on_class(1) == (Mine, (1,))
        assert mine.on_object(1) == (1,)
        assert mine.on_part(1) == (mine, (0, 1))
        """
    )
    names = [record.name for record in spool.drain().records]
    assert names.count("callback Mine.on_start") == 1
