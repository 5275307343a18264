"""False alarms of the detectors of secrets: in conversations without any, and of look-alikes.

    python benchmarks/secret_alarms.py --data FOLDER

Reads every `corpus.jsonl` below the folder, whose messages are taken to hold no secrets, and texts
with identifiers that look like secrets. Exits with 1 if there is more than one alarm in 2,000
messages, or any of a look-alike.
"""

import argparse
import base64
import hashlib
import json
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from memrecall.text.privacy import SECRETS_ONLY, DetectedKinds  # noqa: E402

ALLOWED = 2_000  # messages for each alarm
FRAMES = (
    "See {} for the details.",
    "订单号是 {}，谢谢",
    "build {} is live",
    "id: {}",
    "The key question is about {}.",
    "commit={}",
)


def look_alikes() -> Iterator[str]:
    """Yield texts with UUIDs, hashes, versions, order numbers and base64."""
    chance = random.Random(52)
    kinds: list[Callable[[], str]] = [
        lambda: str(uuid.UUID(int=chance.getrandbits(128))),
        lambda: hashlib.sha256(chance.randbytes(8)).hexdigest()[: chance.choice((7, 12, 40, 64))],
        lambda: f"v{chance.randint(0, 30)}.{chance.randint(0, 99)}.{chance.randint(0, 9)}-rc1",
        lambda: f"ORD-{chance.randint(10**9, 10**10)}",
        lambda: f"{chance.randint(100, 999)}-{chance.randint(10**6, 10**7 - 1)}",
        lambda: (
            f"{chance.randint(1, 899):03}-{chance.randint(1, 99):02}-{chance.randint(1, 9999):04}"
        ),
        lambda: f"PARTITION_KEY={uuid.UUID(int=chance.getrandbits(128))}",
        lambda: base64.b64encode(chance.randbytes(chance.choice((15, 16, 32)))).decode(),
    ]
    for number in range(20):
        for kind in kinds:
            yield FRAMES[number % len(FRAMES)].format(kind())


def messages(folder: Path) -> Iterator[str]:
    """Yield the texts of all corpora below a folder."""
    for file in sorted(folder.rglob("corpus.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            yield str(json.loads(line).get("content", ""))


def alarms(texts: Iterator[str]) -> tuple[int, list[tuple[str, str]]]:
    """Return how many texts there are, and what is redacted in which."""
    count, found = 0, []
    for text in texts:
        count += 1
        kinds = DetectedKinds()
        redacted = SECRETS_ONLY.redact(text, kinds)
        if kinds:
            found.append((", ".join(kinds.redacted), redacted[:200]))
    return count, found


def main() -> int:
    """Print the alarms; return 1 if there are too many."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a folder with corpora; default: look-alikes")
    data = parser.parse_args().data
    told, alike = alarms(messages(data) if data else iter(())), alarms(look_alikes())
    for name, (count, found) in {"messages": told, "look-alikes": alike}.items():
        print(f"{name}: {len(found)} alarms in {count:,}")
        for kinds, text in found:
            print(f"  {kinds}: {text!r}")
    return int(bool(alike[1]) or len(told[1]) * ALLOWED > told[0])


if __name__ == "__main__":
    sys.exit(main())
