//! The help of `--path`. Its proxies are those of the list in `model::factor::proxies`.

use ciphertoll_model::{Engine, Proxy, ProxyProgram};

pub(super) fn help() -> String {
    format!(
        "plain, unix; tls1.3-KEY, tls1.2-KEY (tls1.1, tls1.0) with KEY p256, p384, ed25519, rsa1024, rsa2048, \
         rsa3072, rsa4096, mldsa44 or mldsa65; without KEY the server uses its own certificate; TLS modifiers: \
         +resume, +resume=id, +mtls, +eager, +direct (PostgreSQL 17 and later), +suite=NAME, +group=NAME, +chain=N, \
         +client=rustls or openssl-3.5, and (also for plain) +compress=zlib (MongoDB). Tunnels: ssh-CIPHER \
         (aes128-gcm, aes256-gcm, chacha20-poly1305, aes256-ctr, aes256-cbc; +N for a tunnel without a session), \
         openvpn-CIPHER (aes256-gcm, aes256-cbc, none), wireguard, stunnel. Pooling proxies, with plaintext \
         downstream and TLS upstream: {}; modifiers: +front=tcp, +tls=1.3-KEY, +group=GROUP (proxy), \
         +mode=transaction",
        proxies()
    )
}

/// `proxy (ciphertoll-proxy), one, another (PostgreSQL)`: neighbours in the list with the same servers share the
/// parentheses.
fn proxies() -> String {
    let programs = ProxyProgram::all();
    let with_remarks = programs.iter().enumerate().map(|(at, program)| {
        let remark = remark(*program);
        let next = programs.get(at + 1).map(|next| self::remark(*next));
        if next.as_ref() == Some(&remark) {
            program.label().to_owned()
        } else {
            format!("{} ({remark})", program.label())
        }
    });
    with_remarks.collect::<Vec<_>>().join(", ")
}

/// The engines that a proxy is for; its name if it is for all.
fn remark(program: ProxyProgram) -> String {
    let is_for = |engine: &Engine| Proxy::of(program).impossible(*engine).is_none();
    let engines: Vec<_> = Engine::SQL.into_iter().filter(is_for).map(Engine::display_name).collect();
    if engines.len() == Engine::SQL.len() { program.display_name().to_owned() } else { engines.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_proxy_and_its_servers() {
        let help = help();
        for program in ProxyProgram::all() {
            assert!(help.contains(&format!(" {}", program.label())), "{help}");
        }
        assert!(help.contains(" proxysql (MariaDB, MySQL), mysqlrouter (MySQL); modifiers: "), "{help}");
    }
}
