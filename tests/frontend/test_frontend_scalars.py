"""Functions whose arguments are constants, and the grammar of scalars, against PostgreSQL."""

from __future__ import annotations

import pytest

SAME_AS_POSTGRES = r"""
SELECT encode('\x00ff5c41'::bytea, 'escape'), encode('hello', 'base64'), encode('hello', 'hex')
SELECT encode(decode(repeat('ab', 60), 'hex'), 'base64')
SELECT decode('aGVsbG8=', 'base64') = 'hello'::bytea, decode('68 65', 'hex') = 'he'::bytea, decode('\000\\a', 'escape') = '\x005c61'::bytea
SELECT convert_from('\xc3a9'::bytea, 'UTF8'), chr(233), chr(128512), ascii('é')
SELECT encode(sha256('x'), 'hex'), md5('x'::bytea), md5('x')
SELECT make_timestamp(2020, 2, 29, 23, 59, 59.25), make_timestamp(1, 12, 31, 0, 0, 0), make_timestamp(12345, 6, 7, 8, 9, 10)::text
SELECT 'abc' ~ 'a.c', 'ABC' ~ 'b', 'ABC' ~* 'b', 'abc' !~ 'b', 'abc' !~* 'X', 'a+b' ~ 'a\+b'
SELECT regexp_replace('foobarbaz', 'b..', 'X'), regexp_replace('foobarbaz', 'b..', 'X', 'g'), regexp_replace('fooBar', 'b', 'X', 'i')
SELECT (timestamp '2020-07-01 12:00' AT TIME ZONE 'America/New_York') = timestamptz '2020-07-01 16:00:00+00'
SELECT timestamptz '2020-01-15 12:00:00+00' AT TIME ZONE 'Europe/Paris', timestamptz '2020-01-15 12:00:00+00' AT TIME ZONE '+5'
SELECT timezone(interval '2 hours', timestamptz '2020-01-15 12:00:00+00'), timezone('UTC', timestamptz '2020-01-15 12:00:00+00')
SELECT to_char(timestamp '2020-02-29 15:04:07.01393', 'YYYY-MM-DD HH24:MI:SS.US MS Day DY FMMonth DDD DDth Q J "x" CC WW IW ID AM p.m. BC')
SELECT to_char(timestamp '0987-11-03 00:05:06', 'Y,YYY YYY YY Y IYYY IYY HH12 HH FMDD FMHH12 month MON dy rm RM W SSSS FMDDDth D A.M.')
SELECT to_char(timestamp '2021-01-03 12:00:00', 'IYYY-IW-ID IDDD TMDay'), to_char(timestamp '2022-12-11', 'DDth DDTH FMMMth')
SELECT ~1 + 1, ~(1) * 2, -2 % 3, - 5 + 3, -2::smallint, 3 - -2, 1 << 4, -16 >> 2, 6 # 3
SELECT 'x' || 1, 2.5 || 'y', true || 'z', 'd' || date '2020-01-02', pg_catalog.abs(-3), pg_typeof(1)::text, pg_typeof(2.5)::text
SELECT coalesce(NULL::char(1), 'abc'), coalesce('abcde', NULL::varchar(2))
SELECT concat(true, false, 1, NULL, 'x'), concat_ws('-', true, NULL, 2)
SELECT age(timestamp '2020-03-01 05:00', timestamp '2019-12-31 12:00') = interval '2 months 17 hours'
SELECT date_trunc('hour', interval '1 day 05:06:07') = interval '1 day 5 hours'
SELECT date_trunc('year', interval '14 months') = interval '1 year'
SELECT interval '1-2 3' hour = interval '1 year 2 months 3 hours'
SELECT interval '12:34' minute to second = interval '12 minutes 34 seconds'
SELECT '20070201'::date, '0044-03-15 BC'::date::text, '2007-02-01 3:04 PM'::timestamp, '2007-02-01 12:04 am'::timestamp
SELECT '2007-07-01 15:04:05 America/New_York'::timestamptz::text, '2007-02-01 15:04:05 -3:30'::timestamptz::text
SELECT '12345-01-02'::date::text
SELECT '2000-01-01 00:00:00.9996'::timestamp(3), '2000-01-01 00:00:00.125'::timestamptz(0)::text
SELECT timestamp '1999-12-31 23:59:59.96'::timestamp(1)
SELECT justify_interval(interval '1 month -1 hour') = interval '29 days 23 hours'
SELECT 3.4e38::real::text, -3.4e38::float8, 1.1::real + 0::real = 1.1::real
"""


@pytest.mark.parametrize("sql", [q for q in SAME_AS_POSTGRES.strip().splitlines() if q])
def test_scalars_are_as_in_postgres(worlds, sql: str) -> None:
    worlds.check(sql)
