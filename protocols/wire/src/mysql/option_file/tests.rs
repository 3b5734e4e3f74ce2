use super::*;

fn directives(text: &[u8]) -> Vec<Result<Directive, OptionFileError>> {
    OptionFile::new(text).map(|(_, directive)| directive).collect()
}

/// What `my_print_defaults` of MariaDB 10.11 prints.
#[test]
fn values_are_read_as_by_the_clients() {
    for (line, expected) in [
        (&b"p=a#b"[..], &b"a"[..]),
        (b"p=\"x y\" # c", b"x y"),
        (b"p=a\\\\b\\s\\tq\\z\\", b"a\\b \tq\\z\\"),
        (b" p\t=\tq  ", b"q"),
        (b"p='it''s'", b"it''s"),
        (b"p='a\"", b"'a\""),
        (b"p=\"a#b\\\"c\"", b"a#b\"c"),
        (b"p=a\"#b\"c#d", b"a\"#b\"c"),
        (b"p=\"a#b", b"\"a#b"),
        (b"p=a=b", b"a=b"),
        (b"p=", b""),
        (b"p= #x", b""),
        (b"p=\"\"", b""),
        (b"p=\"", b"\""),
        (b"p=a\r", b"a"),
        (b"p=a\0b", b"a"),
        (b"\xa0p=caf\xe9\xa0", b"caf\xe9"),
    ] {
        let option = Directive::Option { name: b"p".to_vec(), value: Some(expected.to_vec()) };
        let text = [b"[client]\n", line, b"\n"].concat();
        assert_eq!(directives(&text)[1..], [Ok(option)], "{}", line.escape_ascii());
    }
}

#[test]
fn lines_are_read_as_by_the_clients() {
    let group = |name: &str| Ok(Directive::Group(name.as_bytes().to_vec()));
    let text =
        b"# c\n\n ; c\n[client] # c\n[ a ]junk\n!unknown x\n! include  /x y \r\n!includedir\t/d\nflag # c\n";
    let option = Directive::Option { name: b"flag".to_vec(), value: None };
    assert_eq!(
        directives(text),
        [
            group("client"),
            group(" a"),
            Ok(Directive::Include(b"/x y".to_vec())),
            Ok(Directive::IncludeDirectory(b"/d".to_vec())),
            Ok(option),
        ]
    );
    for (text, fault) in [
        (&b"[client\np=1\n"[..], OptionFileError::Group),
        (b"p=1\n[client]\n", OptionFileError::NoGroup),
        (b"\xef\xbb\xbf[client]\n", OptionFileError::ByteOrderMark),
        (b"!include\n[client]\n", OptionFileError::NoPath),
        (b"!include /x", OptionFileError::NoLineEnd),
    ] {
        assert_eq!(directives(text), [Err(fault)], "{}", text.escape_ascii());
    }
    let long = [b"[client]\n", &[b'x'; 5000][..], b"\nflag\n"].concat();
    assert_eq!(directives(&long), [group("client"), Err(OptionFileError::TooLong)]);
}

/// What `mariadb` 10.11 does.
#[test]
fn the_password_has_several_names() {
    let of = |name: &str, value: Option<&str>| PasswordSetting::of(name.as_bytes(), value.map(str::as_bytes));
    let password = |text: &str| Some(PasswordSetting::Password(text.as_bytes().to_vec()));
    for name in [
        "password",
        "PassWord",
        "pass",
        "loose-password",
        "loose_pass",
        "maximum-password",
        "loose-loose-password",
    ] {
        assert_eq!(of(name, Some("x")), password("x"), "{name}");
    }
    for name in ["skip-password", "disable_password", "skip-pass", "loose-skip-password"] {
        assert_eq!(of(name, Some("x")), password(""), "{name}");
        assert_eq!(of(name, None), password(""), "{name}");
    }
    assert_eq!(of("password", None), Some(PasswordSetting::Ask));
    for name in ["pa", "p", "", "passwords", "pass-word", "--password", "user", "loose-", "loose"] {
        assert_eq!(of(name, Some("x")), None, "{name}");
    }
}
