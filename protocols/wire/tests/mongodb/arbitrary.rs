//! Arbitrary bytes give errors, never a panic.

use std::sync::Arc;

use ciphertoll_wire::mongodb::bson::RawDocument;
use ciphertoll_wire::mongodb::document::{to_json, validate};
use ciphertoll_wire::mongodb::{
    COMMAND_REQUEST_ID, CommandTemplate, DocumentsReader, Error, MongoDbConnect, MongoDbLogin,
    MongoDbResponseReader, message,
};
use ciphertoll_wire::{Secret, Step};
use proptest::prelude::*;

/// A valid header with arbitrary content.
fn framed(body: &[u8]) -> Vec<u8> {
    let length = 21 + body.len() as u32;
    let header = [length, 1, COMMAND_REQUEST_ID as u32, 2013, 0].map(u32::to_le_bytes).concat();
    [header, vec![0], body.to_vec()].concat()
}

/// A document with a valid length and end.
fn closed(inside: &[u8]) -> Vec<u8> {
    let length = inside.len() as u32 + 5;
    [&length.to_le_bytes()[..], inside, &[0]].concat()
}

proptest! {
    #[test]
    fn documents(inside: Vec<u8>) {
        for bytes in [inside.clone(), closed(&inside)] {
            if let Ok(document) = RawDocument::from_bytes(&bytes) {
                prop_assert_eq!(validate(document).is_ok(), to_json(document).is_ok());
            }
        }
    }

    #[test]
    fn answers(inside: Vec<u8>) {
        for bytes in [inside.clone(), framed(&inside), framed(&closed(&inside))] {
            let _ = message::take(&mut &*bytes, 1 << 16);
            let counted = MongoDbResponseReader::new(COMMAND_REQUEST_ID).step(&mut &*bytes);
            let collected = DocumentsReader::new(COMMAND_REQUEST_ID, 1 << 16).step(&mut &*bytes);
            // What can be collected can be counted.
            prop_assert!(collected.is_err() || counted.is_ok());
        }
    }

    #[test]
    fn logins(inside: Vec<u8>) {
        for mut bytes in [inside.clone(), framed(&inside), framed(&closed(&inside))] {
            if let Some(response_to) = bytes.get_mut(8..12) {
                response_to.copy_from_slice(&1_u32.to_le_bytes());
            }
            let login = MongoDbLogin::new("toll", Secret::new(b"secret".to_vec()));
            let mut connect = MongoDbConnect::new(Arc::new(login));
            let mut out = Vec::new();
            prop_assert_eq!(connect.step(&mut &b""[..], &mut out), Ok(Step::NeedInput));
            let mut input = bytes.as_slice();
            while let Ok(step) = connect.step(&mut input, &mut out) {
                prop_assert!(step != Step::Done);
                if step == Step::NeedInput {
                    break;
                }
            }
        }
    }

    #[test]
    fn templates(text: String) {
        if let Ok(template) = CommandTemplate::parse(&text) {
            let parameters = vec![ciphertoll_wire::session::Value::Null; template.parameters()];
            prop_assert_eq!(template.encode(&mut Vec::new(), 1, "x", &parameters), Ok::<(), Error>(()));
        }
    }
}
