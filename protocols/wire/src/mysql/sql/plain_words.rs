//! Words of statements that leave nothing on their connection.
//!
//! Names of the server's own functions have precedence over those of stored and loadable functions. The lists have only
//! functions that all versions of MySQL since 5.6 and of MariaDB since 10.0 have, so that no user can define one.

use std::sync::LazyLock;

use crate::words::{WordMap, WordSet};

/// What is known of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlainWord {
    /// Reserved, and of expressions: no function can have this name.
    Reserved,
    /// A function of the server that changes nothing.
    Function,
    /// A key word of data access after which a parenthesis does not contain the arguments of a function.
    DataKeyword,
    /// A further function of the server that leaves nothing. Not all versions have it.
    DataFunction,
    /// It leaves something in any position: numbers of rows, values of sequences.
    Lasting,
}

static WORDS: LazyLock<WordMap<PlainWord>> = LazyLock::new(|| {
    WordMap::of(&[
        (RESERVED, PlainWord::Reserved),
        (FUNCTIONS, PlainWord::Function),
        (DATA_KEYWORDS, PlainWord::DataKeyword),
        (DATA_FUNCTIONS, PlainWord::DataFunction),
        (LASTING, PlainWord::Lasting),
    ])
});

const RESERVED: &str = "all and as between binary case collate decimal distinct distinctrow div else false in interval is like mod \
     not null or regexp rlike then true varchar when xor";

const FUNCTIONS: &str = "abs acos ascii asin atan bin bit_count bit_length cast ceil ceiling char char_length character_length \
     charset coalesce coercibility collation concat concat_ws connection_id conv convert cos cot crc32 curdate \
     current_date current_time current_timestamp current_user curtime database date date_add date_format \
     date_sub datediff day dayname dayofmonth dayofweek dayofyear degrees elt exp export_set extract field \
     find_in_set floor format from_days from_unixtime greatest hex hour if ifnull instr isnull last_day lcase \
     least left length ln locate log log10 log2 lower lpad ltrim makedate microsecond mid minute month \
     monthname now nullif oct octet_length ord pi position pow power quarter quote radians repeat replace \
     reverse right round rpad rtrim schema second sign sin sleep space sqrt str_to_date strcmp substr substring \
     substring_index tan trim truncate unix_timestamp upper user version year";

const DATA_KEYWORDS: &str = "against any by except exists force having ignore index intersect join key lateral limit match offset on \
     over partition row select set some straight_join union using value values where window";

const DATA_FUNCTIONS: &str = "avg bit_and bit_or bit_xor count cume_dist dense_rank first_value from_base64 group_concat grouping \
     inet6_aton inet6_ntoa inet_aton inet_ntoa json_array json_arrayagg json_contains json_extract json_length \
     json_merge_patch json_object json_objectagg json_quote json_remove json_search json_set json_type \
     json_unquote json_valid lag last_value lead max md5 min nth_value ntile percent_rank rank regexp_instr \
     regexp_like regexp_replace regexp_substr row_number sha1 sha2 sum timestampadd timestampdiff to_base64 \
     unhex uuid";

const LASTING: &str = "currval lastval next nextval previous procedure returning setval sql_calc_found_rows";

/// The words of transaction control. `BEGIN` and `START` can also begin other statements.
static TRANSACTION_WORDS: LazyLock<WordSet> =
    LazyLock::new(|| WordSet::of("consistent only read snapshot transaction with work write"));

impl PlainWord {
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        WORDS.get(word)
    }
}

pub(crate) fn is_transaction_word(word: &[u8]) -> bool {
    TRANSACTION_WORDS.contains(word)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_word_has_two_meanings() {
        let lists = [RESERVED, FUNCTIONS, DATA_KEYWORDS, DATA_FUNCTIONS, LASTING];
        let mut known = HashSet::new();
        for word in lists.iter().flat_map(|list| list.split_ascii_whitespace()) {
            assert!(known.insert(word), "{word}");
            assert!(PlainWord::of(word.as_bytes()).is_some(), "{word}");
        }
    }
}
