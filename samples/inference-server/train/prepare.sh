#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the text that the sample's model is trained on, from two Debian packages (Debian 12; nothing is installed):
#   bible-kjv-text     the King James Bible, 1611
#   r-cran-janeaustenr Jane Austen's six novels, 1811 to 1818
# Both texts are in the public domain. The result is plain ASCII of about 8.5 MB: a document per chapter, a form feed
# between documents, a line per paragraph or verse. Equal packages give equal bytes.
#
#   train/prepare.sh text.txt
set -eu
out=$(realpath "${1:?usage: prepare.sh FILE}")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for package in bible-kjv-text=4.38 r-cran-janeaustenr=1.0.0-1; do
  apt-get download -q "$package" >&2
  dpkg-deb -x "${package%%=*}"_*.deb .
done

python3 - "$out" <<'PYTHON'
import re
import struct
import subprocess
import sys
import zlib

NOVELS = ["Emma", "Mansfield Park", "Northanger Abbey", "Persuasion", "Pride and Prejudice", "Sense and Sensibility"]
BOOKS = """Genesis,Exodus,Leviticus,Numbers,Deuteronomy,Joshua,Judges,Ruth,1 Samuel,2 Samuel,1 Kings,2 Kings,
1 Chronicles,2 Chronicles,Ezra,Nehemiah,Esther,Job,Psalms,Proverbs,Ecclesiastes,Song of Solomon,Isaiah,Jeremiah,
Lamentations,Ezekiel,Daniel,Hosea,Joel,Amos,Obadiah,Jonah,Micah,Nahum,Habakkuk,Zephaniah,Haggai,Zechariah,Malachi,
Matthew,Mark,Luke,John,Acts,Romans,1 Corinthians,2 Corinthians,Galatians,Ephesians,Philippians,Colossians,
1 Thessalonians,2 Thessalonians,1 Timothy,2 Timothy,Titus,Philemon,Hebrews,James,1 Peter,2 Peter,1 John,2 John,
3 John,Jude,Revelation""".replace("\n", "").split(",")


def novels(data):
    """R's data base: per novel a length, a zlib stream, and in that a serialized vector of lines."""
    at = 0
    for title in NOVELS:
        stream = zlib.decompressobj()
        rows = stream.decompress(data[at + 4:])
        at = len(data) - len(stream.unused_data)
        here = rows.index(b"UTF-8") + 9  # the header, and the vector's type
        count, here = int.from_bytes(rows[here:here + 4], "big"), here + 4
        lines = []
        for _ in range(count):
            size = max(0, int.from_bytes(rows[here + 4:here + 8], "big", signed=True))
            lines.append(rows[here + 8:here + 8 + size].decode())
            here += 8 + size
        text = "\n".join(lines)
        assert text.upper().startswith(title.upper()), title
        text = re.split(r"\n\s*(?:THE END|FINIS|Finis|A NOTE ON THE TEXT)\s*(?:\n|$)", text)[0].replace("_", "").replace("\u00a3", "L")
        chapters = re.split(r"\n\s*(?:CHAPTER|Chapter) (?:[IVXL]+|\d+)\.?\s*\n", text)
        for number, chapter in enumerate(chapters[1:], 1):
            chapter = re.sub(r"\n\s*VOLUME [IVX]+\s*$", "", chapter)
            paragraphs = (" ".join(p.split()) for p in re.split(r"\n\s*\n", chapter))
            yield "\n".join([f"{title}, chapter {number}", *filter(None, paragraphs)])


def bible(data):
    """brs's format: windows of 64 KiB, each compressed as compress(1) does, without its header."""
    count = struct.unpack(">I", data[0x58:0x5C])[0]
    starts = [*struct.unpack(f">{count}I", data[0x5C:0x5C + 4 * count]), len(data)]
    windows = (b"\x1f\x9d\x90" + data[a:b] for a, b in zip(starts, starts[1:]))
    text = b"".join(subprocess.run(["gzip", "-dc"], input=w, stdout=-1, check=True).stdout for w in windows).decode()
    books, last, verses = iter(BOOKS), None, []
    for book, chapter, verse in re.findall(r"^(\d?[A-Za-z]+)(\d+):\d+ (.*)$", text, re.M):
        if (book, chapter) != last:
            if verses:
                yield "\n".join(verses)
            name = next(books) if last is None or book != last[0] else name
            last, verses = (book, chapter), [f"{name}, chapter {chapter}"]
        verses.append(verse)
    yield "\n".join(verses)
    assert next(books, None) is None


documents = list(bible(open("usr/lib/bible.data", "rb").read()))
documents += novels(open("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb", "rb").read())
text = "\f".join(documents) + "\n"
open(sys.argv[1], "w", encoding="ascii").write(text)
print(f"{len(documents)} documents, {len(text)} characters", file=sys.stderr)
PYTHON
