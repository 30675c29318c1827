"""Queries through parsing, planning and decorrelation, against PostgreSQL's answers."""

from __future__ import annotations

import pytest

QUERIES = """
SELECT 1, 'x', NULL, true, 1.5, -7, 1 + 2 * 3
SELECT a, b + 1 AS c, s || '!' FROM t
SELECT t.*, u.d FROM t, u WHERE t.a = u.c
SELECT * FROM t JOIN u ON a = c AND b < d
SELECT * FROM t LEFT JOIN u ON a = c
SELECT * FROM t RIGHT JOIN u ON a = c
SELECT * FROM t FULL JOIN u ON a = c
SELECT * FROM t LEFT JOIN u ON a = c AND d > 6
SELECT * FROM t LEFT JOIN u ON a = c AND b > 6
SELECT * FROM t RIGHT JOIN u ON a = c AND b > 6
SELECT * FROM t FULL JOIN u ON a = c AND b = d
SELECT * FROM t LEFT JOIN u ON a < c
SELECT * FROM t RIGHT JOIN u ON a < c OR b = d
SELECT * FROM t LEFT JOIN u ON true
SELECT * FROM t LEFT JOIN u ON false
SELECT * FROM t LEFT JOIN empty e ON t.a = e.a
SELECT * FROM empty e LEFT JOIN t ON t.a = e.a
SELECT * FROM t LEFT JOIN u ON a + 1 = c + 1
SELECT * FROM t LEFT JOIN u ON a = c LEFT JOIN w ON w.a = u.c
SELECT * FROM t LEFT JOIN (u JOIN w ON u.c = w.a) ON t.a = u.c
SELECT * FROM t LEFT JOIN u ON a = c AND EXISTS (SELECT 1 FROM w WHERE w.b = t.b)
SELECT * FROM t NATURAL JOIN w
SELECT * FROM t JOIN w USING (a)
SELECT * FROM t LEFT JOIN w USING (a, b)
SELECT * FROM t RIGHT JOIN w USING (a)
SELECT * FROM t FULL JOIN w USING (a)
SELECT a, t.a, w.a, w.b FROM t FULL JOIN w USING (a)
SELECT t.* FROM t JOIN w USING (a)
SELECT * FROM t CROSS JOIN u
SELECT a, count(*), count(b), sum(b), min(b), max(s) FROM t GROUP BY a
SELECT count(*), sum(b), min(b), avg(b) FROM t
SELECT count(*), sum(a), max(a) FROM empty
SELECT a, count(*) FROM empty GROUP BY a
SELECT count(*) FROM t HAVING count(*) > 100
SELECT 1 FROM t HAVING true
SELECT a % 2, sum(b) FROM t GROUP BY a % 2
SELECT a + b, count(*) FROM t GROUP BY a + b HAVING count(*) > 1
SELECT a AS k, sum(b) FROM t GROUP BY k
SELECT a, sum(b) FROM t GROUP BY 1 ORDER BY 2 DESC, 1
SELECT sum(b) + 1, a + 1 FROM t GROUP BY a
SELECT count(DISTINCT a), sum(DISTINCT b), count(DISTINCT s) FROM t
SELECT a, count(*) FILTER (WHERE b > 5), sum(b) FILTER (WHERE s = 'x') FROM t GROUP BY a
SELECT a, avg(b), avg(a) FILTER (WHERE b IS NULL) FROM t GROUP BY a
SELECT stddev(b), variance(a), stddev_pop(b), var_pop(a) FROM t
SELECT avg(x), sum(x) FROM w
SELECT bool_and(a > 1), bool_or(a > 3) FROM t
SELECT a, string_agg(s, ', ' ORDER BY b DESC, s) FROM t GROUP BY a
SELECT array_agg(a ORDER BY b, a), string_agg(s, s ORDER BY s) FROM t WHERE a < 4 AND b IS NOT NULL
SELECT DISTINCT a FROM t
SELECT DISTINCT a, s FROM t ORDER BY s, a
SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b
SELECT DISTINCT ON (a) b, s FROM t ORDER BY a, b DESC, s
SELECT a AS ordered FROM t ORDER BY a
SELECT a AS ordered, b FROM t ORDER BY a DESC, b NULLS FIRST
SELECT a AS ordered, b, s FROM t ORDER BY b + 1, a, s LIMIT 3 OFFSET 1
SELECT a AS ordered FROM t ORDER BY 1 LIMIT 2
SELECT s AS ordered, sum(a) FROM t GROUP BY s ORDER BY sum(b) DESC, s
SELECT s FROM t ORDER BY a LIMIT ALL OFFSET 0
SELECT * FROM (SELECT a, b FROM t ORDER BY b, a LIMIT 3) q
SELECT a FROM t UNION SELECT c FROM u
SELECT a FROM t UNION ALL SELECT c FROM u
SELECT a FROM t INTERSECT SELECT c FROM u
SELECT a FROM t INTERSECT ALL SELECT c FROM u
SELECT a FROM t EXCEPT SELECT c FROM u
SELECT a FROM t EXCEPT ALL SELECT c FROM u
SELECT a FROM t UNION SELECT c FROM u INTERSECT SELECT a FROM w
(SELECT a FROM t UNION ALL SELECT c FROM u) EXCEPT ALL SELECT a FROM w
SELECT a AS ordered FROM t UNION ALL SELECT d FROM u ORDER BY 1 DESC LIMIT 4
SELECT 1 UNION SELECT 2.5 UNION SELECT NULL
SELECT NULL UNION ALL SELECT NULL
SELECT a, 'q' FROM t UNION ALL SELECT NULL, s FROM t
VALUES (1, 'a'), (2, NULL), (NULL, 'c')
SELECT * FROM (VALUES (1, 2), (3, 4)) v(x, y) WHERE y > 2
SELECT column1 + 1 FROM (VALUES (1), (2)) v
WITH q AS (SELECT a, b FROM t WHERE a > 1) SELECT * FROM q q1, q q2 WHERE q1.a = q2.a
WITH q(k) AS (SELECT a FROM t), r AS (SELECT k + 1 AS k FROM q) SELECT * FROM r WHERE k > 2
WITH q AS (SELECT 1 AS x) SELECT (WITH q AS (SELECT 2 AS x) SELECT x FROM q), x FROM q
SELECT (SELECT max(d) FROM u)
SELECT a, (SELECT max(d) FROM u WHERE u.c = t.a) FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.c = t.a) FROM t
SELECT a, (SELECT count(*) FROM u WHERE u.c = t.a AND u.d > t.b) + 1 FROM t
SELECT a, (SELECT d FROM u WHERE u.c = t.a ORDER BY d LIMIT 1) FROM t
SELECT a, (SELECT d FROM u WHERE u.c = t.a ORDER BY d DESC NULLS LAST LIMIT 1 OFFSET 1) FROM t
SELECT a, (SELECT t.a + 1) FROM t
SELECT a, (SELECT t.a + t.b FROM empty) FROM t
SELECT a, (SELECT (SELECT max(w.b) FROM w WHERE w.a = u.c AND w.b > t.b) FROM u WHERE u.c = t.a ORDER BY 1 LIMIT 1) FROM t
SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.c = t.a)
SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.c = t.a)
SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.c = t.a AND EXISTS (SELECT 1 FROM w WHERE w.a = u.c AND w.b = t.b))
SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE t.a IS NULL)
SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.c = t.a) OR b = 5
SELECT * FROM t WHERE EXISTS (SELECT 1 FROM empty) OR NOT EXISTS (SELECT 1 FROM empty)
SELECT EXISTS (SELECT 1 FROM u WHERE c = 99), EXISTS (SELECT 1 FROM u)
SELECT * FROM t WHERE a IN (SELECT c FROM u)
SELECT * FROM t WHERE a NOT IN (SELECT c FROM u)
SELECT * FROM t WHERE a NOT IN (SELECT c FROM u WHERE c IS NOT NULL)
SELECT * FROM t WHERE a NOT IN (SELECT a FROM empty)
SELECT a, a IN (SELECT c FROM u), a NOT IN (SELECT c FROM u), a IN (SELECT a FROM empty) FROM t
SELECT a, a IN (SELECT c FROM u WHERE u.d = t.b) FROM t
SELECT a, a = ANY (SELECT c FROM u), a < ALL (SELECT c FROM u), a > ALL (SELECT a FROM empty), a <> SOME (SELECT c FROM u) FROM t
SELECT * FROM t WHERE (a, b) IN (SELECT c, d FROM u)
SELECT * FROM t WHERE (a, b) IN ((1, 10), (2, 3))
SELECT * FROM t WHERE (a, b) < (2, 10)
SELECT * FROM t WHERE b > (SELECT avg(d) FROM u WHERE u.c = t.a)
SELECT * FROM t WHERE b = (SELECT max(b) FROM t t2 WHERE t2.a = t.a)
SELECT a, sum(b) FROM t GROUP BY a HAVING sum(b) > (SELECT min(d) FROM u WHERE u.c = t.a)
SELECT a, (SELECT sum(d) FROM u WHERE u.c = t.a) FROM t GROUP BY a
SELECT sum((SELECT max(d) FROM u WHERE u.c = t.a)) FROM t
SELECT count(*) FROM t WHERE a > (SELECT count(*) FROM empty)
SELECT CASE WHEN a > 1 THEN (SELECT max(d) FROM u WHERE u.c = t.a) ELSE b END FROM t
SELECT CASE WHEN a = 1 THEN (SELECT d FROM u WHERE u.c = 99) WHEN EXISTS (SELECT 1 FROM u WHERE c = a) THEN 5 END, a FROM t
SELECT * FROM t, LATERAL (SELECT d FROM u WHERE u.c = t.a) q
SELECT * FROM t LEFT JOIN LATERAL (SELECT max(d) AS m, count(*) AS n FROM u WHERE u.c = t.a) q ON true
SELECT * FROM t LEFT JOIN LATERAL (SELECT d FROM u WHERE u.c = t.a AND d > 10) q ON q.d < 100
SELECT * FROM t, LATERAL (SELECT t.a + u.d AS z FROM u WHERE u.c = t.a ORDER BY u.d LIMIT 1) q
SELECT * FROM t, LATERAL (WITH q AS (SELECT t.a * 2 AS z) SELECT q1.z + q2.z FROM q q1, q q2) r
SELECT * FROM t, LATERAL (WITH m AS (SELECT max(d) m FROM u WHERE c = a) SELECT (SELECT m + b FROM m), c FROM u WHERE c = (TABLE m) - 9) r
SELECT a, (WITH q AS (SELECT d FROM u WHERE c = t.a) SELECT count(*) FROM q, w WHERE q.d = w.b OR w.a = (SELECT min(d) FROM q)) FROM t
SELECT a, (SELECT count(*) FROM (SELECT d FROM u WHERE c = t.a UNION SELECT b FROM w WHERE w.a = t.a) z) FROM t
SELECT a, (SELECT count(*) FROM (SELECT d FROM u WHERE c = t.a EXCEPT ALL SELECT b FROM w WHERE w.a = t.a) z) FROM t
SELECT a, (SELECT count(DISTINCT d) FROM u LEFT JOIN w ON u.c = w.a AND w.b = t.b WHERE u.c = t.a) FROM t
SELECT a, (SELECT count(x) FROM u LEFT JOIN w ON u.d < w.b + t.a) FROM t
SELECT a, (SELECT count(*) FROM u FULL JOIN w ON u.c = w.a AND w.b = t.b) FROM t
SELECT a, (SELECT sum(k) FROM (SELECT DISTINCT ON (c) c, d AS k FROM u WHERE c >= t.a ORDER BY c, d) z) FROM t
SELECT * FROM generate_series(1, 4)
SELECT g + 1 FROM generate_series(1, 10, 3) AS g
SELECT a, g FROM t, generate_series(1, a) AS g
SELECT a, g.x FROM t LEFT JOIN LATERAL generate_series(a, 2) AS g(x) ON true
SELECT generate_series(1, a), b FROM t
SELECT a, (SELECT count(*) FROM generate_series(1, t.a)) FROM t
SELECT * FROM t WHERE a BETWEEN 2 AND 3
SELECT * FROM t WHERE a NOT BETWEEN 2 AND 3
SELECT a IN (1, 2, NULL), a NOT IN (1, 2), b IN (10) FROM t
SELECT coalesce(a, b, 0), nullif(a, 1), greatest(a, b), least(a, b, 3) FROM t
SELECT a IS DISTINCT FROM b, a IS NOT DISTINCT FROM NULL, a IS NULL, b IS NOT NULL FROM t
SELECT (a = 1) IS TRUE, (a = 1) IS NOT TRUE, (a = 1) IS FALSE, (a = 1) IS UNKNOWN FROM t
SELECT CASE a WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE s END FROM t
SELECT CASE WHEN a > 1 THEN 1 ELSE 2.5 END FROM t
SELECT s LIKE 'y%', s NOT LIKE 'x', s ILIKE 'Y_' FROM t
SELECT a::text, b::bigint, '7'::int, CAST(a AS numeric(10, 3)), a::double precision FROM t
SELECT y + INTERVAL '1' MONTH, y - INTERVAL '90' DAY, extract(year FROM y) FROM w
SELECT y FROM w WHERE y >= DATE '2020-01-31' AND y < '2021-01-01'
SELECT y - DATE '2020-01-01' FROM w
SELECT substring(s FROM 1 FOR 1), position('y' IN s), upper(s), length(s), trim(s) FROM t
SELECT x * 2, x / 3, x + a, -x FROM w
SELECT a / 2, a % 2, -a / 2, b / 3.0 FROM t
SELECT NOT a = 1 OR b = 10 AND s = 'x' FROM t
SELECT "a" AS "Weird Name", t."b" FROM t
SELECT max(a) FROM (SELECT a FROM t UNION ALL SELECT c FROM u) q GROUP BY a % 2
SELECT t1.a, t2.a, t3.c FROM t t1 JOIN t t2 ON t1.b = t2.b JOIN u t3 ON t2.a = t3.c
SELECT a, (SELECT b) FROM t
SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE a = 2)
SELECT q.a FROM (SELECT * FROM t) AS q WHERE q.b IS NULL
SELECT public.t.a FROM public.t
SELECT a FROM t FETCH FIRST 0 ROWS ONLY
SELECT sum(a) FROM t WHERE false
SELECT 1 IN (SELECT a FROM t WHERE t.b = u.d) FROM u
SELECT * FROM t, u FULL JOIN w ON u.c = w.a
SELECT * FROM t, u RIGHT JOIN w ON u.c = w.a AND u.d = w.b
SELECT * FROM w, w AS x JOIN t USING (a)
SELECT * FROM t, LATERAL (SELECT d FROM u WHERE u.c = t.a) q LEFT JOIN w ON q.d = w.b
SELECT * FROM t, u FULL JOIN LATERAL (SELECT t.a + 1 AS k FROM w) q ON q.k = u.c
SELECT * FROM t CROSS JOIN (u LEFT JOIN LATERAL (SELECT t.a + u.c AS k) q ON true)
SELECT * FROM t LEFT JOIN (u JOIN LATERAL (SELECT t.b AS k WHERE u.c = t.a) q ON true) ON true
SELECT * FROM t, generate_series(1, 2) g LEFT JOIN u ON u.c = g
SELECT * FROM t, LATERAL (SELECT * FROM (SELECT a AS k) z WHERE true) q
SELECT * FROM t, LATERAL (SELECT * FROM (SELECT b AS k) z LEFT JOIN LATERAL (SELECT b + k AS l) y ON true) q
SELECT x.a, x.*, t.b FROM t JOIN w USING (a) AS x
SELECT x.a, x.b FROM t LEFT JOIN w USING (b, a) AS x WHERE x.a > 1
SELECT x.a, t.a, w.a FROM t FULL JOIN w USING (a) AS x
SELECT x.a, w.b FROM t RIGHT JOIN w USING (a) AS x
SELECT q.a, q.s FROM (t NATURAL JOIN w) q
SELECT * FROM (t JOIN w USING (a)) q (k, l)
SELECT q.* FROM (t JOIN u ON a = c) q WHERE q.d > 5
SELECT * FROM (VALUES (1, 2) UNION ALL SELECT c, d FROM u) v
SELECT * FROM (VALUES (3), (1), (2) ORDER BY 1 LIMIT 2) v
SELECT * FROM t LEFT JOIN (VALUES (1) UNION VALUES (2)) v ON t.a = v.column1
SELECT a FROM t WHERE a IN (VALUES (1), (3))
SELECT a, b FROM t WHERE (a, b) IN (VALUES (1, 10), (2, 3))
SELECT a, a NOT IN (VALUES (1), (NULL)) FROM t
SELECT (VALUES (7)), EXISTS (VALUES (1)), EXISTS (SELECT 1 UNION SELECT 2), (SELECT 1 UNION SELECT 1)
SELECT a, a = ANY (VALUES (1) UNION SELECT 4) FROM t
SELECT * FROM t GROUP BY 1, 2, 3
SELECT t.*, count(*) FROM t GROUP BY 3, 1, 2
SELECT a AS ordered FROM t ORDER BY a LIMIT (SELECT count(*) FROM w) - 2
SELECT a, q.d FROM t, LATERAL (SELECT d FROM u ORDER BY d LIMIT (SELECT max(c) FROM u WHERE c < t.a)) q
SELECT a, q.d FROM t, LATERAL (SELECT c, d FROM u ORDER BY d, c LIMIT (SELECT t.a - 1 WHERE t.a > 0) OFFSET 1) q
SELECT a AS ordered FROM t ORDER BY a LIMIT 1 + 1 OFFSET 2 - 1
SELECT a ^ 2, 2 ^ 3 ^ 2, -a ^ 2, 2 * 3 ^ 2, (b::numeric ^ 2)::int, pg_typeof(2 ^ 3)::text FROM t
SELECT count(q) FROM (SELECT a, b FROM t) q
SELECT count(t) FROM t
SELECT count(DISTINCT q) FROM (SELECT a, b FROM t) q
SELECT a, (SELECT count(q) FROM (SELECT t.b) q) FROM t
SELECT (SELECT max(a) FROM t WHERE t.b = ANY (SELECT d FROM u WHERE u.c = w.a)) FROM w
SELECT a, (SELECT count(*) FROM u WHERE (u.c, u.d) IN (SELECT w.a, w.b FROM w WHERE w.a = t.a)) FROM t
SELECT a IN (SELECT c FROM u WHERE d IN (SELECT b FROM w WHERE w.a = u.c OR w.b = t.b)) FROM t
SELECT a FROM t GROUP BY a HAVING a IN (SELECT c FROM u) AND count(*) > ALL (SELECT 0 FROM empty)
SELECT a, b FROM t ORDER BY (SELECT max(d) FROM u WHERE u.c = t.a) NULLS FIRST, b
SELECT (SELECT max(d) FROM u WHERE u.c = t.a) AS m, count(*) FROM t GROUP BY (SELECT max(d) FROM u WHERE u.c = t.a)
SELECT DISTINCT ON ((SELECT max(d) FROM u WHERE u.c = t.a)) b FROM t ORDER BY (SELECT max(d) FROM u WHERE u.c = t.a), b
SELECT count(*) FILTER (WHERE EXISTS (SELECT 1 FROM u WHERE u.c = t.a)) FROM t
SELECT string_agg(s, (SELECT '-') ORDER BY b, s) FROM t
VALUES ((SELECT max(a) FROM t), 1), ((SELECT min(b) FROM t), (SELECT count(*) FROM empty))
SELECT * FROM t LEFT JOIN u ON t.a = u.c AND u.d IN (SELECT b FROM w WHERE w.a = t.a)
SELECT * FROM t FULL JOIN u ON t.a = u.c AND (u.d > 6 OR t.b IS NULL)
SELECT * FROM t RIGHT JOIN u ON t.a = u.c AND u.d = 7
SELECT * FROM t NATURAL FULL JOIN w
SELECT * FROM t NATURAL LEFT JOIN u
SELECT * FROM t NATURAL RIGHT JOIN w NATURAL JOIN empty
WITH q AS (SELECT a FROM t), r AS (WITH q AS (SELECT c FROM u) SELECT * FROM q) SELECT * FROM q, r
SELECT * FROM (WITH t AS (SELECT 1 AS one) SELECT * FROM t) z, t
SELECT a, (WITH q AS (SELECT t.a AS k), r AS (SELECT k + 1 AS k FROM q) SELECT sum(r.k + q.k) FROM r, q) FROM t
SELECT a FROM t UNION (SELECT c FROM u ORDER BY c LIMIT 2) INTERSECT SELECT a FROM w
(SELECT a FROM t EXCEPT SELECT c FROM u) UNION ALL (SELECT a FROM w INTERSECT ALL SELECT c FROM u)
SELECT 1.5 UNION SELECT 2 UNION ALL SELECT NULL
SELECT NULL INTERSECT SELECT NULL
SELECT 1 UNION SELECT '3'
SELECT a, s FROM t EXCEPT SELECT NULL, 'z' EXCEPT ALL SELECT 1, 'x'
SELECT CASE WHEN a = 1 THEN 1 / (a - 1 + 1) WHEN a IS NULL THEN 1 ELSE 0 END FROM t
SELECT s FROM t WHERE s NOT LIKE '%y' AND s ILIKE 'Y%' OR s LIKE '_'
SELECT (a, b) = (SELECT c, d FROM u WHERE c = 4 LIMIT 1) FROM t
SELECT a, (a, b) <> (SELECT c, d FROM u WHERE c = 5) FROM t
SELECT a, (a, b) < (SELECT max(c), max(d) FROM u), (a, b) = (SELECT c, d FROM u WHERE c = 99) FROM t
SELECT ROW(a, b) = ROW(1, 10), ROW(a, b) IN (ROW(1, 10), ROW(2, 3)), ROW(a, b) >= ROW(2, 3) FROM t
SELECT (a, b) IS NOT DISTINCT FROM (3, NULL), (a, s) IS DISTINCT FROM (1, 'x') FROM t
SELECT count(*) FROM (SELECT a, b FROM t) q JOIN (SELECT a, b FROM t) r ON q = r
SELECT count(*) FROM (SELECT a, b FROM t) q JOIN (SELECT a, b FROM w) r ON q <> r
SELECT a, (a, b) IN (SELECT c, d FROM u), (a, b) = ANY (SELECT c, d FROM u), (a, b) <> ALL (SELECT c, d FROM u WHERE c IS NOT NULL) FROM t
SELECT count(*) FROM (SELECT FROM t) q
SELECT 1 FROM (SELECT) q
SELECT a, EXISTS (SELECT FROM u WHERE u.c = t.a) FROM t
SELECT a, d FROM t JOIN (SELECT c::bigint AS a, d FROM u) q USING (a)
SELECT a, t.a, q.a FROM t FULL JOIN (SELECT c::bigint AS a, d FROM u) q USING (a)
SELECT (q).a, (q).s FROM (SELECT a, s FROM t) q
SELECT (q).* FROM (SELECT a, s FROM t) q
SELECT ((SELECT 2) UNION SELECT 2), (((SELECT 3)) UNION SELECT 3)
SELECT s LIKE ANY (ARRAY['x%', 'z']), s NOT LIKE ANY (ARRAY['x', 'y%']), s NOT LIKE ALL (ARRAY['x', 'z']) FROM t
SELECT a, s ILIKE ANY (SELECT upper(s) FROM t), s NOT ILIKE ALL (ARRAY['X', NULL]) FROM t
SELECT a FROM t WHERE NOT (s LIKE ANY (ARRAY['x', 'z']))
SELECT int4 '7' + 1, bool 'true', text 'x' || 'y'
SELECT a = ANY ('{1,3,NULL}'), b <> ALL ('{10,20}'), s = ANY ('{x,"y"}') FROM t
SELECT a FROM w WHERE x = ANY ('{1.5,7}') OR y = ANY ('{2020-02-29}')
SELECT a NULL, s TRUE FROM t
"""


@pytest.mark.parametrize("sql", [q for q in QUERIES.strip().splitlines() if q])
def test_answers_are_postgres_answers(worlds, sql: str) -> None:
    worlds.check(sql)
