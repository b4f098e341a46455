"""Work ahead of the consumer in a thread."""

import threading
from collections.abc import Generator, Iterable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterable[T], depth: int) -> Generator[T, None, None]:
    """Yield the items in order, up to `depth` of them made ahead by a thread.

    An exception of the maker reaches the consumer after the items before it. Closing the iterator
    ends the thread. With depth 0 there is no thread.
    """
    if depth == 0:
        yield from items
        return
    # A result is one item in a tuple, or what ended them: an exception or None.
    ready: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
    room = threading.Semaphore(depth)
    stopped = threading.Event()

    def make() -> None:
        """Make items ahead until there are no more, or nobody wants them."""
        try:
            iterator = iter(items)
            while room.acquire() and not stopped.is_set():
                ready.put((next(iterator),))
        except StopIteration:
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=make, name="prefetch", daemon=True)
    thread.start()
    try:
        while isinstance(result := ready.get(), tuple):
            room.release()
            yield result[0]
        if result is not None:
            raise result
    finally:
        stopped.set()
        room.release()
        thread.join()
