"""Turns, which one thread at a time takes; the child of a fork begins again."""

import contextlib
import functools
import os
import queue
from typing import Any

OF_MODULE, OF_BUILDS, OF_NAMES = "_turn", "_fusegen_builds", "_fusegen_names"


def taken(holder: Any, name: str = OF_MODULE) -> "contextlib.ExitStack":
    """Take a turn until the context that this returns is left.

    Args:
        holder: the object that keeps the turn, where every thread finds it.
        name: of the attribute.
    """
    if name not in vars(holder):
        made = _new_turn()
        if vars(holder).setdefault(name, made) is made:  # of two threads, the first one's stays
            os.register_at_fork(after_in_child=functools.partial(_begin_again, holder, name))
    turn, stack = vars(holder)[name], contextlib.ExitStack()
    stack.callback(turn.put, turn.get())
    return stack


def _new_turn() -> "queue.SimpleQueue[None]":
    turn: "queue.SimpleQueue[None]" = queue.SimpleQueue()
    turn.put(None)
    return turn


def _begin_again(holder: Any, name: str) -> None:
    vars(holder)[name] = _new_turn()
