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
            // A name without a dot is of this network.
            !name.contains('.') || name.parse::<IpAddr>().is_ok()
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
        return Some(Err(HttpResponse::text(
            "403 Forbidden",
            "the Host must be localhost, a name without a dot, or an address\n",
        )));
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
mod tests;
