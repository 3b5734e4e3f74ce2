//! `Authentication…` messages: requests for credentials, and the acceptance.

use crate::postgres::{
    codec::reader::{Reader, put_nul_terminated, put_u32},
    error::Error,
    md5::SALT_BYTES,
};

const OK: u32 = 0;
const CLEARTEXT: u32 = 3;
const MD5: u32 = 5;
const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

/// A message of type `R`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// The client is authenticated.
    Ok,
    /// The server requests the cleartext password.
    Cleartext,
    /// The server requests an MD5 hash of the password.
    Md5 { salt: [u8; SALT_BYTES] },
    /// The server offers these SASL mechanisms.
    Sasl {
        /// In the server's order of preference.
        mechanisms: Vec<&'a [u8]>,
    },
    /// The mechanism's next challenge.
    SaslContinue(&'a [u8]),
    /// The mechanism's final message; [`Authentication::Ok`] follows.
    SaslFinal(&'a [u8]),
    /// Another method, such as Kerberos.
    Other(u32),
}

impl<'a> Authentication<'a> {
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "authentication request");
        let request = match reader.u32()? {
            OK => Self::Ok,
            CLEARTEXT => Self::Cleartext,
            MD5 => Self::Md5 { salt: reader.array()? },
            SASL => Self::Sasl { mechanisms: mechanisms(&mut reader)? },
            SASL_CONTINUE => Self::SaslContinue(reader.rest()),
            SASL_FINAL => Self::SaslFinal(reader.rest()),
            other => return Ok(Self::Other(other)),
        };
        reader.end()?;
        Ok(request)
    }

    /// Appends the payload. Mechanism names must have no NUL and must not be empty.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_u32(out, self.code());
        match self {
            Self::Ok | Self::Cleartext | Self::Other(_) => {}
            Self::Md5 { salt } => out.extend_from_slice(salt),
            Self::Sasl { mechanisms } => {
                for mechanism in mechanisms {
                    put_nul_terminated(out, mechanism);
                }
                out.push(0);
            }
            Self::SaslContinue(data) | Self::SaslFinal(data) => out.extend_from_slice(data),
        }
    }

    /// The name of a method that is not supported.
    pub(crate) fn name_of_other(code: u32) -> String {
        match code {
            2 => "Kerberos V5".to_owned(),
            6 => "SCM credentials".to_owned(),
            7 => "GSSAPI".to_owned(),
            9 => "SSPI".to_owned(),
            other => format!("number {other}"),
        }
    }

    fn code(&self) -> u32 {
        match self {
            Self::Ok => OK,
            Self::Cleartext => CLEARTEXT,
            Self::Md5 { .. } => MD5,
            Self::Sasl { .. } => SASL,
            Self::SaslContinue(_) => SASL_CONTINUE,
            Self::SaslFinal(_) => SASL_FINAL,
            Self::Other(code) => *code,
        }
    }
}

fn mechanisms<'a>(reader: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, Error> {
    let mut mechanisms = Vec::new();
    loop {
        match reader.nul_terminated()? {
            b"" => return Ok(mechanisms),
            mechanism => mechanisms.push(mechanism),
        }
    }
}
