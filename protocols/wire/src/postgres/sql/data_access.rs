//! The words of plain data access and transaction control. A session from which the server has received nothing else is
//! assumed to leave nothing behind.
//!
//! Triggers, column defaults, and functions, operators and casts that users have defined are not seen.

use std::sync::LazyLock;

use crate::words::WordSet;

/// Words after which a parenthesis does not contain the arguments of a function, and types with a precision.
static BEFORE_PARENTHESIS: LazyLock<WordSet> = LazyLock::new(|| {
    WordSet::of(
        "all and any array as between bit by case char conflict copy decimal distinct else except exists filter \
         float from having ilike in intersect interval into is join key lateral like limit materialized not \
         numeric offset on or over partition returning row select set sets similar some then time timestamp to \
         union using values varchar when where with",
    )
});

/// Functions of the server that change nothing. One that a user has defined under such a name is not told apart.
static FUNCTIONS: LazyLock<WordSet> = LazyLock::new(|| {
    WordSet::of(
        "abs age array_agg array_length array_to_string avg bool_and bool_or btrim cardinality cast ceil ceiling \
         char_length chr clock_timestamp coalesce concat concat_ws count cume_dist current_setting date_part \
         date_trunc decode dense_rank div encode every exp extract first_value floor format gen_random_uuid \
         generate_series greatest initcap json_agg json_array_length json_build_array json_build_object jsonb_agg \
         jsonb_array_elements jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each jsonb_set lag \
         last_value lead least left length ln log lower lpad ltrim make_date max md5 min mod now ntile nullif \
         octet_length overlay percent_rank pg_sleep position power rank regexp_replace repeat replace reverse \
         right round row_number row_to_json rpad rtrim sign split_part sqrt string_agg strpos substr substring \
         sum to_char to_date to_json to_jsonb to_timestamp trim upper",
    )
});

/// Whether such a statement may begin with this word.
pub(crate) fn is_verb(word: &[u8]) -> bool {
    let is_data =
        matches!(word, b"select" | b"insert" | b"update" | b"delete" | b"merge" | b"values" | b"table");
    let is_other = || matches!(word, b"with" | b"copy" | b"show" | b"savepoint" | b"release");
    let is_transaction = || matches!(word, b"begin" | b"start" | b"commit" | b"end" | b"rollback" | b"abort");
    is_data || is_other() || is_transaction()
}

/// Whether this word may stand before an opening parenthesis.
pub(crate) fn is_plain_before_parenthesis(word: &[u8]) -> bool {
    FUNCTIONS.contains(word) || BEFORE_PARENTHESIS.contains(word)
}
