//! Alerts (RFC 8446, 6; RFC 5246, 7.2) that are not encrypted.

use std::borrow::Cow;

use crate::side::ConnectionSide;

/// An encrypted alert is longer.
pub(crate) const ALERT_BYTES: usize = 2;
const FATAL: u8 = 2;

/// A fatal alert: its sender ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alert {
    pub from: ConnectionSide,
    pub description: u8,
}

impl Alert {
    /// `None` for a warning.
    pub(crate) fn parse([level, description]: [u8; ALERT_BYTES], from: ConnectionSide) -> Option<Self> {
        (level == FATAL).then_some(Self { from, description })
    }

    /// IANA's name ("TLS Alerts"); an alert without one is shown by its number.
    pub fn label(self) -> Cow<'static, str> {
        let name = match self.description {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            21 => "decryption_failed",
            22 => "record_overflow",
            30 => "decompression_failure",
            40 => "handshake_failure",
            41 => "no_certificate",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            52 => "too_many_cids_requested",
            60 => "export_restriction",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            111 => "certificate_unobtainable",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            114 => "bad_certificate_hash_value",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            117 => "general_error",
            120 => "no_application_protocol",
            121 => "ech_required",
            number => return number.to_string().into(),
        };
        name.into()
    }
}
