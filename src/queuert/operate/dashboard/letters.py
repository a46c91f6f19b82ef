"""About how wide a text is: pictures are laid out here, and only the browser knows the font.

The widths are those of a wide font, so that a text which fits here fits everywhere.
"""

from __future__ import annotations

NARROW = frozenset("iljtfrI.,:;'|!()[]{}/\\- ·`")
WIDE = frozenset("mwMW@%&…—")
NARROW_WIDTH, LETTER_WIDTH, CAPITAL_WIDTH, WIDE_WIDTH, SQUARE_WIDTH = 0.41, 0.64, 0.79, 1.0, 1.1
"""In sizes of the letters."""
BOLD = 1.1


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """In pixels."""
    return sum(map(_letter, text)) * size * (BOLD if bold else 1)


def fitted(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """The text, or as much of its beginning as there is room for."""
    if width_of(text, size, bold=bold) <= room:
        return text
    room -= width_of("…", size, bold=bold)
    kept = 0
    while (room := room - width_of(text[kept], size, bold=bold)) >= 0:
        kept += 1
    return f"{text[:kept].rstrip()}…"


def _letter(letter: str) -> float:
    if letter in NARROW:
        return NARROW_WIDTH
    if letter in WIDE:
        return WIDE_WIDTH
    if letter.isascii():
        return CAPITAL_WIDTH if letter.isupper() else LETTER_WIDTH
    return SQUARE_WIDTH
