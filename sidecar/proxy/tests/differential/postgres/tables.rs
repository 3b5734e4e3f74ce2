//! The tables that sessions use, and what a client must find on a connection.

use std::time::Duration;

use super::connection::{Connection, rows};

const ROWS: &str = "INSERT INTO public.t SELECT i, 'row ' || i, i * 10, i / 2.0, date '2020-01-01' + i \
                    FROM generate_series(1, 5) i; \
                    INSERT INTO public.u VALUES (1, 'one'), (2, NULL); \
                    INSERT INTO other.t VALUES (1, 100, 'other')";

/// After sessions that changed rows only.
pub(crate) const RESTORE_ROWS: &str = "DELETE FROM public.t; DELETE FROM public.u; DELETE FROM other.t; \
     INSERT INTO public.t SELECT i, 'row ' || i, i * 10, i / 2.0, date '2020-01-01' + i \
     FROM generate_series(1, 5) i; \
     INSERT INTO public.u(a, b) VALUES (1, 'one'), (2, NULL); \
     INSERT INTO other.t VALUES (1, 100, 'other'); \
     SELECT setval('public.s', 1, false)";

pub(crate) fn restore_all(user: &str) -> String {
    format!(
        "DROP SCHEMA IF EXISTS public CASCADE; DROP SCHEMA IF EXISTS other CASCADE; \
         CREATE SCHEMA public; CREATE SCHEMA other; \
         GRANT ALL ON SCHEMA public, other TO {user}; SET ROLE {user}; \
         CREATE TABLE public.t (id int PRIMARY KEY, v text, n bigint, f float8, d date); \
         CREATE TABLE other.t (id int PRIMARY KEY, v int, n text); \
         CREATE TABLE public.u (a int, b text); \
         CREATE SEQUENCE public.s; \
         CREATE VIEW public.w AS SELECT id, v FROM public.t; \
         CREATE FUNCTION public.plus(a int, b int) RETURNS int LANGUAGE sql AS 'SELECT a + b'; \
         CREATE FUNCTION public.fails() RETURNS int LANGUAGE plpgsql AS \
         $$BEGIN RAISE EXCEPTION 'fails' USING ERRCODE = 'P0009', DETAIL = 'detail', HINT = 'hint'; END$$; \
         CREATE FUNCTION public.says() RETURNS int LANGUAGE plpgsql AS \
         $$BEGIN RAISE NOTICE 'says'; RETURN 1; END$$; \
         CREATE PROCEDURE public.work() LANGUAGE plpgsql AS \
         $$BEGIN INSERT INTO public.u VALUES (7, 'work'); COMMIT; INSERT INTO public.u VALUES (8, 'more'); END$$; \
         {ROWS}; RESET ROLE"
    )
}

/// State that must not reach another client. Libraries that were loaded, with their settings, survive every reset.
const STATE: &str = "SELECT 'settings', count(*), md5(string_agg(name || '=' || coalesce(setting, ''), ',' ORDER BY name)) \
     FROM pg_settings WHERE context IN ('user', 'superuser') AND name !~ '^(tcp_|plpgsql|transaction_)'; \
     SELECT 'custom', current_setting('app.x', true); \
     SELECT 'statements', count(*) FROM pg_prepared_statements; \
     SELECT 'portals', count(*) FROM pg_cursors WHERE name <> ''; \
     SELECT 'temporary', count(*) FROM pg_class \
     WHERE relpersistence = 't' AND relnamespace = pg_my_temp_schema(); \
     SELECT 'locks', count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'; \
     SELECT 'channels', count(*) FROM pg_listening_channels(); \
     SELECT 'users', current_user = session_user, current_schemas(false); \
     SELECT 'transaction', txid_current_if_assigned() IS NULL, current_setting('transaction_isolation'), \
     current_setting('transaction_read_only'), current_setting('transaction_deferrable')";
/// Must fail, because no sequence was used.
const LAST_VALUE: &str = "SELECT lastval()";
pub(crate) const ALL_SETTINGS: &str = "SELECT name, setting FROM pg_settings \
     WHERE context IN ('user', 'superuser') AND name !~ '^(tcp_|plpgsql|transaction_)' ORDER BY name";

/// The state that a client finds; `None` if it is not answered in time.
pub(crate) fn find(client: &mut Connection, limit: Duration) -> Option<Vec<String>> {
    let mut found = rows(&client.query(STATE, limit)?);
    found.extend(rows(&client.query(LAST_VALUE, limit)?));
    Some(found)
}
