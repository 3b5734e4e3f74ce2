use super::*;

fn read(output: &str) -> Result<(String, Option<String>, Option<Expiry>), OutputError> {
    let printed = parse(&Secret::new(output.as_bytes().to_vec()))?;
    let password = String::from_utf8(printed.password.expose().to_vec()).unwrap();
    Ok((password, printed.user, printed.expiry))
}

fn at(text: &str) -> Expiry {
    Expiry::At(text.parse().unwrap())
}

#[test]
fn text_is_the_password_without_its_line_end() {
    for (output, password) in
        [("x", "x"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" x ", " x "), ("a{", "a{")]
    {
        assert_eq!(read(output), Ok((password.to_owned(), None, None)), "{output:?}");
    }
    assert_eq!((read(""), read("\n")), (Err(OutputError::Empty), Err(OutputError::Empty)));
    assert_eq!(read("a\0b"), Err(OutputError::Nul));
}

#[test]
fn the_output_of_known_commands_is_read() {
    // AWS: a URL without its scheme, as `aws rds generate-db-auth-token` prints it.
    let token = "db.example:5432/?Action=connect&DBUser=app&X-Amz-Expires=900&X-Amz-Signature=0f";
    assert_eq!(read(&format!("{token}\n")), Ok((token.to_owned(), None, None)));
    // AWS Secrets Manager.
    let secret =
        r#"{"username":"app_clone","password":"p{w","engine":"postgres","host":"db.example","port":5432}"#;
    assert_eq!(read(secret), Ok(("p{w".to_owned(), Some("app_clone".to_owned()), None)));
    // Azure: the first time has no zone.
    let azure = r#"{
  "accessToken": "eyJ0",
  "expiresOn": "2026-11-30 13:59:10.000000",
  "expires_on": 1796046000,
  "subscription": "0",
  "tenant": "0",
  "tokenType": "Bearer"
}"#;
    assert_eq!(read(azure), Ok(("eyJ0".to_owned(), None, Some(at("2026-11-30T13:40:00Z")))));
    // Google: `gcloud config config-helper --format=json`.
    let google = r#"{"configuration":{"active_configuration":"default","properties":{"core":{"account":"a"}}},
        "credential":{"access_token":"ya29","id_token":"x","token_expiry":"2026-11-30T14:00:00Z"},"sentinels":{}}"#;
    assert_eq!(read(google), Ok(("ya29".to_owned(), None, Some(at("2026-11-30T14:00:00Z")))));
    // Vault: dynamic and static users, and the second version of the key-value store.
    let vault = r#"{"request_id":"1","lease_id":"database/creds/app/x","lease_duration":3600,"renewable":true,
        "data":{"password":"A1a-x","username":"v-token-app-x"},"warnings":null}"#;
    let hour = Some(Expiry::After(Duration::from_hours(1)));
    assert_eq!(read(vault), Ok(("A1a-x".to_owned(), Some("v-token-app-x".to_owned()), hour)));
    let fixed = r#"{"lease_duration":0,"data":{"last_vault_rotation":"2026-11-30T11:00:00Z","password":"p",
        "rotation_period":86400,"ttl":3600,"username":"app"}}"#;
    assert_eq!(read(fixed), Ok(("p".to_owned(), Some("app".to_owned()), hour)));
    let store = r#"{"lease_duration":0,"data":{"data":{"password":"p"},"metadata":{"version":1}}}"#;
    assert_eq!(read(store), Ok(("p".to_owned(), None, None)));
}

#[test]
fn the_first_of_several_expiries_counts() {
    let of = |fields: &str| read(&format!("{{\"token\": \"t\", {fields}}}")).map(|(_, _, expiry)| expiry);
    let early = Some(at("2026-11-30T13:40:00Z"));
    for field in MOMENTS {
        for value in ["1796046000", "1796046000.9", "\"1796046000\"", "\"2026-11-30T14:40:00+01:00\""] {
            assert_eq!(of(&format!("\"{field}\": {value}")), Ok(early), "{field} {value}");
        }
        assert_eq!(of(&format!("\"{field}\": \"2026-11-30 13:40:00\"")), Err(OutputError::NotTime(field)));
        assert_eq!(of(&format!("\"{field}\": true")), Err(OutputError::NotTime(field)));
        assert_eq!(of(&format!("\"{field}\": 1e300")), Err(OutputError::NotTime(field)));
        assert_eq!(of(&format!("\"{field}\": null")), Ok(None));
    }
    assert_eq!(of("\"expires\": 1796046000, \"expiration\": 1796046001"), Ok(early));
    for field in SPANS {
        let minute = Some(Expiry::After(Duration::from_mins(1)));
        assert_eq!(of(&format!("\"{field}\": 60, \"expires\": 9999999999")), Ok(minute));
        assert_eq!(of(&format!("\"{field}\": \"60\"")), Ok(minute));
        assert_eq!(of(&format!("\"{field}\": -1")), Err(OutputError::NotSeconds(field)));
        assert_eq!(of(&format!("\"{field}\": 1e15")), Ok(Some(Expiry::After(LONGEST))));
    }
}

#[test]
fn json_without_one_password_is_refused_and_not_repeated() {
    for (output, error) in [
        ("{}", OutputError::NoPassword),
        ("{\"password\": \"\"}", OutputError::NotText("password")),
        ("{\"password\": 1}", OutputError::NotText("password")),
        ("{\"password\": \"a\\u0000\"}", OutputError::Nul),
        ("{\"password\": \"a\", \"token\": \"b\"}", OutputError::SeveralPasswords),
        ("{\"password\": \"a\", \"username\": \"\"}", OutputError::NotText("username")),
        ("{\"password\": \"a\", \"username\": \"b\\u0000\"}", OutputError::NotText("username")),
        ("{\"other\": {\"password\": \"a\"}}", OutputError::NoPassword),
        ("{\"data\": {\"data\": {\"data\": {\"password\": \"a\"}}}}", OutputError::NoPassword),
    ] {
        assert_eq!(read(output), Err(error), "{output}");
    }
    for output in ["{hunter2", "{\"password\": \"hunter2\"", "{\"password\": \"x\"} hunter2"] {
        let error = read(output).unwrap_err().to_string();
        assert!(error.contains("is not a JSON object") && !error.contains("hunter2"), "{error}");
    }
}
