"""Numbers written in Chinese, and the vague ones among them."""

import re

from memrecall.text.times.ranges import Count

DIGITS = "零一二三四五六七八九"
# What may stand in a number; 两 and 〇 are other ways to write 二 and 零.
NUMERALS = DIGITS + "〇两十百千"
_PLACES = {"十": 10, "百": 100, "千": 1000}
_VARIANTS = str.maketrans("〇两", "零二")
_PAIR = re.compile(f"([{DIGITS[1:]}])([{DIGITS[1:]}])([十百千]?)")
FEW = Count(2, 5)


def read_number(text: str) -> int:
    """Read 15, 十五, 三百二十 or, digit by digit, 二〇二五."""
    if text.isdecimal():
        return int(text)
    plain = text.translate(_VARIANTS)
    if all(sign in DIGITS for sign in plain):
        return int("".join(str(DIGITS.index(sign)) for sign in plain))
    total, digit = 0, None
    for sign in plain:
        if sign in _PLACES:
            total += (1 if digit is None else digit) * _PLACES[sign]
            digit = None
        else:
            digit = DIGITS.index(sign)
    return total + (digit or 0)


def read_count(text: str) -> Count:
    """Read how many: 三 is exact, 几 is two to five, 两三 two or three, 二三十 twenty to thirty."""
    if text[-1] in "几数":
        return FEW
    if pair := _PAIR.fullmatch(text.translate(_VARIANTS)):
        low, high = DIGITS.index(pair[1]), DIGITS.index(pair[2])
        if low < high:
            place = _PLACES.get(pair[3], 1)
            return Count(low * place, high * place)
    number = read_number(text)
    return Count(number, number)
