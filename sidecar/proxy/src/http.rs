//! HTTP/1.1, as far as the admin address needs it: requests with a short body, and responses that end the connection.

use std::net::IpAddr;

/// Of the head of a request.
pub(crate) const MAX_REQUEST_BYTES: usize = 8 << 10;
/// A command.
const MAX_BODY_BYTES: usize = 4 << 10;
pub(crate) const MAX_HEADERS: usize = 64;

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";
pub(crate) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The path of the console.
pub(crate) const CONSOLE_PATH: &str = "/console";
/// The same of one of several servers, whose name follows.
pub(crate) const CONSOLE_OF_SERVER: &str = "/console/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpRequest {
    Get(String),
    /// A command of the console.
    Command {
        /// The name of one of several servers.
        server: Option<String>,
        text: String,
        format: ResponseFormat,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    Text,
    Json,
}

pub(crate) struct HttpResponse {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn text(status: &'static str, body: &str) -> Self {
        Self { status, content_type: TEXT, body: body.to_owned() }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let Self { status, content_type, body } = self;
        let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.as_bytes());
    }
}

/// Which hosts a request may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRule {
    /// Only processes of this machine reach a unix socket.
    Any,
    /// A browser of this machine must not send the requests of a page whose name has been given a loopback address.
    ThisMachine,
}

impl HostRule {
    fn permits(self, headers: &[httparse::Header<'_>]) -> bool {
        let is_local = |host: &str| {
            let in_brackets = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let name = match in_brackets {
                Some((address, _)) => address,
                None => host.split_once(':').map_or(host, |(name, _)| name),
            };
            name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
        };
        let mut hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        self == Self::Any || hosts.all(|host| std::str::from_utf8(host.value).is_ok_and(is_local))
    }
}

/// The request in these bytes, or the response that refuses it; `None` while the request is incomplete.
pub(crate) fn parse_request(bytes: &[u8], hosts: HostRule) -> Option<Result<HttpRequest, HttpResponse>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < MAX_REQUEST_BYTES => return None,
        Ok(httparse::Status::Partial) => {
            return Some(Err(HttpResponse::text(
                "431 Request Header Fields Too Large",
                "the request is too long\n",
            )));
        }
        Ok(httparse::Status::Complete(head)) => head,
        Err(_) => return Some(Err(HttpResponse::text("400 Bad Request", "not an HTTP request\n"))),
    };
    if !hosts.permits(request.headers) {
        return Some(Err(HttpResponse::text("403 Forbidden", "the Host must be localhost or an address\n")));
    }
    let path = request.path.map(|path| path.split_once('?').map_or(path, |(path, _)| path));
    match (request.method, path) {
        (Some("GET"), Some(path)) => Some(Ok(HttpRequest::Get(path.to_owned()))),
        (Some("POST"), Some(CONSOLE_PATH)) => parse_command(request.headers, &bytes[head..], None),
        (Some("POST"), Some(path)) if path.starts_with(CONSOLE_OF_SERVER) => {
            let server = path[CONSOLE_OF_SERVER.len()..].to_owned();
            parse_command(request.headers, &bytes[head..], Some(server))
        }
        _ => Some(Err(HttpResponse::text("405 Method Not Allowed", "only GET is supported\n"))),
    }
}

fn parse_command(
    headers: &[httparse::Header<'_>],
    body: &[u8],
    server: Option<String>,
) -> Option<Result<HttpRequest, HttpResponse>> {
    let value = |name: &str| {
        let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        header.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let refuse = |status, reason: &str| Some(Err(HttpResponse::text(status, reason)));
    let Some(length) = value("content-length").and_then(|length| length.parse::<usize>().ok()) else {
        return refuse("411 Length Required", "the command is the body, with a Content-Length\n");
    };
    if length > MAX_BODY_BYTES {
        return refuse("413 Content Too Large", "the command is too long\n");
    }
    let body = body.get(..length)?;
    let Ok(text) = std::str::from_utf8(body) else {
        return refuse("400 Bad Request", "the command is not valid UTF-8\n");
    };
    let wants_json = value("accept").is_some_and(|accepted| accepted.contains(JSON));
    let format = if wants_json { ResponseFormat::Json } else { ResponseFormat::Text };
    Some(Ok(HttpRequest::Command { server, text: text.to_owned(), format }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(bytes: &[u8]) -> Option<Result<HttpRequest, &'static str>> {
        parse_request(bytes, HostRule::ThisMachine).map(|request| request.map_err(|response| response.status))
    }

    #[test]
    fn a_page_of_another_host_is_refused_on_tcp() {
        for host in ["localhost", "LOCALHOST:9187", "127.0.0.1", "127.0.0.1:9187", "[::1]:9187", "[::1]"] {
            assert_eq!(
                parsed(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).map(|it| it.is_ok()),
                Some(true),
                "{host}"
            );
        }
        for host in
            ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil.example"]
        {
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
}
