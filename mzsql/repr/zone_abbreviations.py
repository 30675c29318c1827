"""What time zones are called in short, with the seconds that each is east of UTC.

Promise: PostgreSQL's default set, as far as an abbreviation always means one offset and is no name of a zone with rules of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

_HOUR = 3600
_HOURS: Mapping[str, float] = {
    "ACDT": 10.5, "ACST": 9.5, "ADT": -3, "AEDT": 11, "AEST": 10, "AKDT": -8, "AKST": -9, "ALMT": 6, "AST": -4, "AWST": 8,
    "BDST": 2, "BRST": -2, "BRT": -3, "BST": 1, "CADT": 10.5, "CAST": 9.5, "CCT": 8, "CDT": -5, "CEST": 2, "CETDST": 2, "CLST": -3,
    "CST": -6, "EASST": -5, "EDT": -4, "EEST": 3, "EETDST": 3, "FNST": -1, "FNT": -2, "GILT": 12, "HKT": 8, "ICT": 7, "IDT": 3,
    "IST": 2, "JAYT": 9, "JST": 9, "KDT": 10, "KST": 9, "MAGT": 11, "MDT": -6, "MESZ": 2, "MEZ": 1, "MMT": 6.5, "MPT": 10,
    "MSD": 4, "MSK": 3, "MUT": 4, "MVT": 5, "NDT": -2.5, "NFT": -3.5, "NPT": 5.75, "NST": -3.5, "NZDT": 13, "NZST": 12, "PDT": -7,
    "PGT": 10, "PHT": 8, "PKT": 5, "PST": -8, "RET": 4, "SADT": 10.5, "SAST": 2, "SCT": 4, "SGT": 8, "TFT": 5, "UZT": 5, "WAKT": 12,
    "WAT": 1, "WETDST": 1, "YAPT": 10,
}  # fmt: skip
#: Those in which clocks are ahead for the summer.
DAYLIGHT = frozenset(
    {
        *("ACDT", "ADT", "AEDT", "AKDT", "BDST", "BRST", "BST", "CADT", "CDT", "CEST", "CETDST", "CLST", "EASST", "EDT", "EEST", "EETDST"),
        *("FNST", "IDT", "KDT", "MDT", "MESZ", "MSD", "NDT", "NZDT", "PDT", "SADT", "WETDST"),
    }
)  # fmt: skip
#: Seconds east of UTC by the abbreviation in capitals.
ABBREVIATIONS: Mapping[str, int] = {name: int(hours * _HOUR) for name, hours in _HOURS.items()}
