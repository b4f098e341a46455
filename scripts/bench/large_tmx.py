"""Memory and speed of reading a large translation memory (TMX) as training data.

    python scripts/bench/large_tmx.py [--megabytes 100 1000] [--folder DIR]

Made-up units with inline codes are written to a temporary folder, and read in a process of its own.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

UNITS_IN_BLOCK = 4000
READ = """
import sys
from pathlib import Path
from transformer_mt.data.bilingual_sources import BilingualPairs
pairs = BilingualPairs(
    Path(sys.argv[1]), kind="tmx", inline=sys.argv[2], src_lang="en", tgt_lang="de"
)
print(sum(1 for _ in pairs))
"""


def block() -> bytes:
    """Return units of made-up words, one in ten with inline codes."""
    rng = random.Random(1)
    words = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)
    ]
    units = []
    for number in range(UNITS_IN_BLOCK):
        texts = [" ".join(rng.choices(words, k=rng.randint(3, 25))) for _ in range(2)]
        if number % 10 == 0:
            texts = [
                f'<bpt i="1">&lt;b></bpt>{text}<ept i="1">&lt;/b></ept> &amp; {text}'
                for text in texts
            ]
        variants = "".join(
            f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>\n'
            for code, text in zip(("en-US", "de-DE"), texts, strict=True)
        )
        units.append(f'<tu tuid="{number}" creationdate="20260101T000000Z">\n{variants}</tu>\n')
    return "".join(units).encode()


def write_memory(path: Path, num_bytes: int) -> int:
    """Write a memory of about a size; return the number of its units."""
    some = block()
    times = max(1, round(num_bytes / len(some)))
    with open(path, "wb") as file:
        file.write(b'<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en-US"/><body>\n')
        for _ in range(times):
            file.write(some)
        file.write(b"</body></tmx>\n")
    return times * UNITS_IN_BLOCK


def main() -> None:
    """Write, read and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--folder", type=Path, help="where the files are written, and removed")
    parser.add_argument("--inline", choices=("drop", "keep"), default="drop")
    arguments = parser.parse_args()
    print("| file, MB | units | CPU seconds | units per CPU second | peak memory, MB |")
    print("|---|---|---|---|---|")
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            path = Path(folder) / "large.tmx"
            num_units = write_memory(path, megabytes * 10**6)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [sys.executable, "-c", READ, str(path), arguments.inline],
                check=True, capture_output=True, text=True, env=os.environ,
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert int(done.stdout) == num_units, done.stdout
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(
                f"| {path.stat().st_size / 1e6:,.0f} | {num_units:,} | {seconds:.0f} | "
                f"{num_units / seconds:,.0f} | {after.ru_maxrss / 1024:,.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
