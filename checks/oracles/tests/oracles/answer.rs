//! A server's response in terms that every driver has.

/// Rows as text; `None` is NULL.
pub(crate) type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// The result of a statement or a login.
pub(crate) type Answer<T = Rows> = Result<T, Refusal>;

/// A refusal by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// MySQL's or MongoDB's error number, or `PostgreSQL`'s severity.
    pub(crate) code: String,
    /// The SQL state, or the name of MongoDB's number.
    pub(crate) state: String,
    pub(crate) message: String,
}

impl Refusal {
    /// `invalid_authorization_specification` or `PostgreSQL`'s `invalid_password`.
    pub(crate) fn is_about_the_password(&self) -> bool {
        ["28000", "28P01"].contains(&self.state.as_str())
    }
}

/// The length to which values are shown in a difference.
const SHOWN_BYTES: usize = 60;

/// Panics with the first difference, not with megabytes of rows.
#[track_caller]
pub(crate) fn assert_same(what: &str, ours: &Answer, oracle: &Answer) {
    let (ours, oracle) = match (ours, oracle) {
        (Ok(ours), Ok(oracle)) => (ours, oracle),
        (Err(ours), Err(oracle)) => return assert_eq!(ours, oracle, "refusals of {what}"),
        (ours, oracle) => {
            let (ours, oracle) = (ours.as_ref().map(Vec::len), oracle.as_ref().map(Vec::len));
            panic!("{what}: rows in ours {ours:?}, in the oracle's {oracle:?}")
        }
    };
    for (number, (ours, oracle)) in ours.iter().zip(oracle).enumerate() {
        assert_eq!(ours.len(), oracle.len(), "columns in row {number} of {what}");
        for (column, (ours, oracle)) in ours.iter().zip(oracle).enumerate() {
            let (shown, expected) = (shown(ours.as_deref()), shown(oracle.as_deref()));
            assert!(
                ours == oracle,
                "{what}: row {number}, column {column}: ours {shown}, the oracle's {expected}"
            );
        }
    }
    assert_eq!(ours.len(), oracle.len(), "rows of {what}");
}

/// Panics unless both were refused with the same message and this SQL state.
#[track_caller]
pub(crate) fn assert_refused<T, U>(what: &str, state: &str, ours: Answer<T>, oracle: Answer<U>) {
    let (Err(ours), Err(oracle)) = (ours, oracle) else { panic!("{what} was not refused to both") };
    assert_eq!(ours, oracle, "refusals of {what}");
    assert_eq!(ours.state, state, "{what}: {}", ours.message);
}

/// Panics unless both were refused with the same message and this number.
#[track_caller]
pub(crate) fn assert_refused_with<T, U>(what: &str, code: &str, ours: Answer<T>, oracle: Answer<U>) {
    let (Err(ours), Err(oracle)) = (ours, oracle) else { panic!("{what} was not refused to both") };
    assert_eq!(ours, oracle, "refusals of {what}");
    assert_eq!(ours.code, code, "{what}: {}", ours.message);
}

fn shown(value: Option<&[u8]>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some(bytes) => {
            let beginning = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]);
            format!("{beginning:?} ({} bytes)", bytes.len())
        }
    }
}
