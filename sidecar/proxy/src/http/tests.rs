use super::*;

fn parsed(bytes: &[u8]) -> Option<Result<HttpRequest, &'static str>> {
    parse_request(bytes, HostRule::ThisMachine).map(|request| request.map_err(|response| response.status))
}

#[test]
fn a_page_of_another_host_is_refused_on_tcp() {
    for host in
        ["localhost", "LOCALHOST:9187", "db1:9187", "", "127.0.0.1", "127.0.0.1:9187", "[::1]:9187", "[::1]"]
    {
        assert_eq!(
            parsed(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).map(|it| it.is_ok()),
            Some(true),
            "{host}"
        );
    }
    for host in ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"] {
        let request = format!("GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(parsed(request.as_bytes()), Some(Err("403 Forbidden")), "{host}");
        assert!(parse_request(request.as_bytes(), HostRule::Any).is_some_and(|it| it.is_ok()), "{host}");
    }
    let two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_eq!(parsed(two), Some(Err("403 Forbidden")));
}

#[test]
fn a_request_parses_the_same_whole_and_byte_by_byte() {
    let get = HttpRequest::Get("/metrics".to_owned());
    let text = "SHOW POOLS".to_owned();
    let command = HttpRequest::Command { server: None, text: text.clone(), format: ResponseFormat::Json };
    let server = Some("orders".to_owned());
    let of_one = HttpRequest::Command { server, text, format: ResponseFormat::Text };
    for (whole, request) in [
        (&b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"[..], get),
        (
            b"POST /console HTTP/1.1\r\naccept: application/json\r\ncontent-LENGTH: 10\r\n\r\nSHOW POOLS",
            command,
        ),
        (b"POST /console/orders HTTP/1.1\r\ncontent-length: 10\r\n\r\nSHOW POOLS", of_one),
    ] {
        for cut in 0..whole.len() {
            assert_eq!(parsed(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(parsed(whole), Some(Ok(request)));
    }
}

#[test]
fn invalid_requests_are_refused() {
    assert_eq!(parsed(b"POST / HTTP/1.1\r\n\r\n"), Some(Err("405 Method Not Allowed")));
    assert_eq!(parsed(b"\x16\x03\x01\x02\0"), Some(Err("400 Bad Request")));
    let long = [b"GET / HTTP/1.1\r\nX: ", &[b'x'; MAX_REQUEST_BYTES][..]].concat();
    assert_eq!(parsed(&long), Some(Err("431 Request Header Fields Too Large")));
    let many = [b"GET / HTTP/1.1\r\n", &b"A: b\r\n".repeat(MAX_HEADERS + 1)[..]].concat();
    assert_eq!(parsed(&many), Some(Err("400 Bad Request")));
    let post = |headers: &str, body: &[u8]| {
        parsed(&[format!("POST /console HTTP/1.1\r\n{headers}\r\n").as_bytes(), body].concat())
    };
    assert_eq!(post("", b"PAUSE"), Some(Err("411 Length Required")));
    assert_eq!(post("Content-Length: -1\r\n", b"PAUSE"), Some(Err("411 Length Required")));
    assert_eq!(post("Transfer-Encoding: chunked\r\n", b"5\r\nPAUSE"), Some(Err("411 Length Required")));
    assert_eq!(post("Content-Length: 4097\r\n", b""), Some(Err("413 Content Too Large")));
    assert_eq!(post("Content-Length: 1\r\n", b"\xff"), Some(Err("400 Bad Request")));
}

#[test]
fn a_response_has_its_content_length() {
    let mut out = Vec::new();
    HttpResponse::text("405 Method Not Allowed", "only GET\n").write(&mut out);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{text}");
    assert!(text.contains("Content-Length: 9\r\nAllow: GET\r\n") && text.ends_with("\r\n\r\nonly GET\n"));
}
