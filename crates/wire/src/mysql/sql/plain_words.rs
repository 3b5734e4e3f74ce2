//! Words of statements that leave nothing on their connection.
//!
//! Names of the server's own functions have precedence over those of stored and loadable functions. The lists have only
//! functions that all versions of MySQL since 5.6 and of MariaDB since 10.0 have, so that no user can define one.

/// Reserved words of expressions: no function can have these names.
const RESERVED: [&[u8]; 28] = [
    b"all",
    b"and",
    b"as",
    b"between",
    b"binary",
    b"case",
    b"collate",
    b"decimal",
    b"distinct",
    b"distinctrow",
    b"div",
    b"else",
    b"false",
    b"in",
    b"interval",
    b"is",
    b"like",
    b"mod",
    b"not",
    b"null",
    b"or",
    b"regexp",
    b"rlike",
    b"then",
    b"true",
    b"varchar",
    b"when",
    b"xor",
];

/// Functions of the server that change nothing.
const FUNCTIONS: [&[u8]; 119] = [
    b"abs",
    b"acos",
    b"ascii",
    b"asin",
    b"atan",
    b"bin",
    b"bit_count",
    b"bit_length",
    b"cast",
    b"ceil",
    b"ceiling",
    b"char",
    b"char_length",
    b"character_length",
    b"charset",
    b"coalesce",
    b"coercibility",
    b"collation",
    b"concat",
    b"concat_ws",
    b"connection_id",
    b"conv",
    b"convert",
    b"cos",
    b"cot",
    b"crc32",
    b"curdate",
    b"current_date",
    b"current_time",
    b"current_timestamp",
    b"current_user",
    b"curtime",
    b"database",
    b"date",
    b"date_add",
    b"date_format",
    b"date_sub",
    b"datediff",
    b"day",
    b"dayname",
    b"dayofmonth",
    b"dayofweek",
    b"dayofyear",
    b"degrees",
    b"elt",
    b"exp",
    b"export_set",
    b"extract",
    b"field",
    b"find_in_set",
    b"floor",
    b"format",
    b"from_days",
    b"from_unixtime",
    b"greatest",
    b"hex",
    b"hour",
    b"if",
    b"ifnull",
    b"instr",
    b"isnull",
    b"last_day",
    b"lcase",
    b"least",
    b"left",
    b"length",
    b"ln",
    b"locate",
    b"log",
    b"log10",
    b"log2",
    b"lower",
    b"lpad",
    b"ltrim",
    b"makedate",
    b"microsecond",
    b"mid",
    b"minute",
    b"month",
    b"monthname",
    b"now",
    b"nullif",
    b"oct",
    b"octet_length",
    b"ord",
    b"pi",
    b"position",
    b"pow",
    b"power",
    b"quarter",
    b"quote",
    b"radians",
    b"repeat",
    b"replace",
    b"reverse",
    b"right",
    b"round",
    b"rpad",
    b"rtrim",
    b"schema",
    b"second",
    b"sign",
    b"sin",
    b"sleep",
    b"space",
    b"sqrt",
    b"str_to_date",
    b"strcmp",
    b"substr",
    b"substring",
    b"substring_index",
    b"tan",
    b"trim",
    b"truncate",
    b"unix_timestamp",
    b"upper",
    b"user",
    b"version",
    b"year",
];

/// Key words of data access after which a parenthesis does not contain the arguments of a function.
const DATA_KEYWORDS: [&[u8]; 30] = [
    b"against",
    b"any",
    b"by",
    b"except",
    b"exists",
    b"force",
    b"having",
    b"ignore",
    b"index",
    b"intersect",
    b"join",
    b"key",
    b"lateral",
    b"limit",
    b"match",
    b"offset",
    b"on",
    b"over",
    b"partition",
    b"row",
    b"select",
    b"set",
    b"some",
    b"straight_join",
    b"union",
    b"using",
    b"value",
    b"values",
    b"where",
    b"window",
];

/// Further functions of the server that leave nothing. Not all versions have all of them.
const DATA_FUNCTIONS: [&[u8]; 53] = [
    b"avg",
    b"bit_and",
    b"bit_or",
    b"bit_xor",
    b"count",
    b"cume_dist",
    b"dense_rank",
    b"first_value",
    b"from_base64",
    b"group_concat",
    b"grouping",
    b"inet6_aton",
    b"inet6_ntoa",
    b"inet_aton",
    b"inet_ntoa",
    b"json_array",
    b"json_arrayagg",
    b"json_contains",
    b"json_extract",
    b"json_length",
    b"json_merge_patch",
    b"json_object",
    b"json_objectagg",
    b"json_quote",
    b"json_remove",
    b"json_search",
    b"json_set",
    b"json_type",
    b"json_unquote",
    b"json_valid",
    b"lag",
    b"last_value",
    b"lead",
    b"max",
    b"md5",
    b"min",
    b"nth_value",
    b"ntile",
    b"percent_rank",
    b"rank",
    b"regexp_instr",
    b"regexp_like",
    b"regexp_replace",
    b"regexp_substr",
    b"row_number",
    b"sha1",
    b"sha2",
    b"sum",
    b"timestampadd",
    b"timestampdiff",
    b"to_base64",
    b"unhex",
    b"uuid",
];

/// Words that leave something wherever they are: numbers of rows, values of sequences.
const LASTING: [&[u8]; 8] = [
    b"currval",
    b"lastval",
    b"next",
    b"nextval",
    b"previous",
    b"procedure",
    b"setval",
    b"sql_calc_found_rows",
];

/// The words of transaction control. `BEGIN` and `START` can also begin other statements.
const TRANSACTION_WORDS: [&[u8]; 8] =
    [b"consistent", b"only", b"read", b"snapshot", b"transaction", b"with", b"work", b"write"];

pub(crate) fn is_reserved(word: &[u8]) -> bool {
    RESERVED.binary_search(&word).is_ok()
}

pub(crate) fn is_function(word: &[u8]) -> bool {
    FUNCTIONS.binary_search(&word).is_ok()
}

pub(crate) fn is_data_keyword(word: &[u8]) -> bool {
    DATA_KEYWORDS.binary_search(&word).is_ok()
}

pub(crate) fn is_data_function(word: &[u8]) -> bool {
    DATA_FUNCTIONS.binary_search(&word).is_ok()
}

pub(crate) fn is_lasting(word: &[u8]) -> bool {
    LASTING.binary_search(&word).is_ok()
}

pub(crate) fn is_transaction_word(word: &[u8]) -> bool {
    TRANSACTION_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_in_order() {
        assert!(RESERVED.is_sorted() && FUNCTIONS.is_sorted() && LASTING.is_sorted());
        assert!(DATA_KEYWORDS.is_sorted() && DATA_FUNCTIONS.is_sorted() && TRANSACTION_WORDS.is_sorted());
    }
}
