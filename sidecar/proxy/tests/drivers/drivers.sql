-- What a person does with psql, told line by line: the same with a proxy in between as without.
SELECT 6 * 7, 'Grüße 🙂', NULL, '\x00ff'::bytea;
DROP TABLE IF EXISTS of_psql;
CREATE TABLE of_psql (n int, s text);
BEGIN;
INSERT INTO of_psql VALUES (1, 'a');
ROLLBACK;
SELECT count(*) FROM of_psql;
COPY of_psql FROM STDIN;
1	one
2	two
3	\N
\.
\copy of_psql TO STDOUT
\set ON_ERROR_STOP off
SELECT 1 / 0;
\echo :LAST_ERROR_SQLSTATE
\set ON_ERROR_STOP on
PREPARE by_number (int) AS SELECT s FROM of_psql WHERE n = $1;
EXECUTE by_number (2);
DEALLOCATE by_number;
SELECT max(n) AS n FROM of_psql \gset last_
\echo :last_n
\d of_psql
SELECT 1 AS one \; SELECT 2 AS two;
SET TIME ZONE 'Asia/Tokyo';
SHOW TimeZone;
\set FETCH_COUNT 1000
SELECT repeat('x', 100) FROM generate_series(1, 20000);
DROP TABLE of_psql;
