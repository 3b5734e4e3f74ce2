//! Why OpenSSL refused a certificate, with what the certificate says.

use std::cell::RefCell;
use std::net::IpAddr;

use openssl::nid::Nid;
use openssl::x509::{X509Ref, X509StoreContextRef, X509VerifyResult};

/// `X509_V_ERR_…` of `x509_vfy.h`.
const NOT_YET_VALID: i32 = 9;
const HAS_EXPIRED: i32 = 10;
const HOSTNAME_MISMATCH: i32 = 62;
const IP_ADDRESS_MISMATCH: i32 = 64;
const SHOWN_NAMES: usize = 5;

thread_local! {
    /// Of the last certificate that was refused on this thread, until it is taken: OpenSSL forgets the certificate.
    static LAST: RefCell<Option<(i32, String)>> = const { RefCell::new(None) };
}

/// A callback of OpenSSL for each certificate: decides as OpenSSL does, and keeps the reason of a refusal.
pub(super) fn remember(is_accepted: bool, context: &mut X509StoreContextRef) -> bool {
    if !is_accepted {
        let result = context.error();
        let text = reason(result, context.current_cert());
        LAST.set(Some((result.as_raw(), text)));
    }
    is_accepted
}

/// The reason that was kept for `result`.
pub(super) fn take(result: X509VerifyResult) -> Option<String> {
    LAST.take().filter(|(kept, _)| *kept == result.as_raw()).map(|(_, text)| text)
}

/// OpenSSL's reason, with the dates or names of the certificate if they are the reason.
pub(super) fn reason(result: X509VerifyResult, certificate: Option<&X509Ref>) -> String {
    let error = result.error_string();
    let Some(certificate) = certificate else { return error.to_owned() };
    match result.as_raw() {
        HAS_EXPIRED => {
            format!("{error}: {} was valid until {}", subject(certificate), certificate.not_after())
        }
        NOT_YET_VALID => {
            format!("{error}: {} is valid from {}", subject(certificate), certificate.not_before())
        }
        HOSTNAME_MISMATCH | IP_ADDRESS_MISMATCH => format!("{error}: it is for {}", names(certificate)),
        _ => error.to_owned(),
    }
}

fn common_name(certificate: &X509Ref) -> Option<String> {
    let name = certificate.subject_name().entries_by_nid(Nid::COMMONNAME).next()?;
    Some(printable(&name.data().to_string().ok()?))
}

fn subject(certificate: &X509Ref) -> String {
    common_name(certificate).map_or_else(|| "it".to_owned(), |name| format!("CN={name}"))
}

/// The names that OpenSSL compares: the alternative ones, else the subject's.
fn names(certificate: &X509Ref) -> String {
    let alternative = certificate.subject_alt_names();
    let mut names: Vec<String> = alternative
        .iter()
        .flatten()
        .filter_map(|name| name.dnsname().map(printable).or_else(|| address(name.ipaddress()?)))
        .collect();
    if names.is_empty() {
        names.extend(common_name(certificate));
    }
    let more = names.len().saturating_sub(SHOWN_NAMES);
    names.truncate(SHOWN_NAMES);
    match (names.is_empty(), more) {
        (true, _) => "no name".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(|address| address.to_string())
}

/// The certificate may be anyone's.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).take(80).collect()
}
