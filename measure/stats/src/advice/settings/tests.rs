use ciphertoll_model::{Auth, Driver, Link};

use super::*;

fn all(server: &str, path: &str, at_rest: AtRest) -> String {
    all_at(server, path, at_rest, None)
}

fn all_at(server: &str, path: &str, at_rest: AtRest, url: Option<&str>) -> String {
    let url: Option<ServerUrl> = url.map(|url| url.parse().unwrap());
    let treatment = Treatment {
        server: server.parse().unwrap(),
        path: path.parse().unwrap(),
        auth: Auth::Trust,
        ctx: None,
        driver: Driver::Native,
        link: Link::Local,
        at_rest,
    };
    settings(&treatment, url.as_ref())
        .into_iter()
        .fold(String::new(), |text, file| text + &file.place + "\n" + &file.text)
}

#[test]
fn servers_refuse_plaintext_and_older_versions() {
    let postgres = all("postgres", "tls1.3-p256", AtRest::None);
    for line in ["hostnossl all all all reject", "ssl_min_protocol_version = 'TLSv1.3'"] {
        assert!(postgres.contains(line), "{line}: {postgres}");
    }
    let mariadb = all("mariadb", "tls1.2-p256", AtRest::None);
    for line in ["require_secure_transport = ON", "tls_version = TLSv1.2,TLSv1.3"] {
        assert!(mariadb.contains(line), "{line}: {mariadb}");
    }
}

#[test]
fn client_certificates_that_were_measured_are_demanded() {
    let postgres = all("postgres", "tls1.3-p256+mtls", AtRest::None);
    for line in ["clientcert=verify-full", "ssl_ca_file", "sslcert="] {
        assert!(postgres.contains(line), "{line}: {postgres}");
    }
    let mariadb = all("mariadb", "tls1.3-p256+mtls", AtRest::None);
    for line in ["REQUIRE X509", "ssl_ca = ", "ssl-cert="] {
        assert!(mariadb.contains(line), "{line}: {mariadb}");
    }
}

/// Nothing that was measured is left out without a word.
#[test]
fn what_has_no_template_is_named() {
    for (path, at_rest, page) in [
        ("ssh-aes256-gcm", AtRest::None, "docs/measure/tunnels.md"),
        ("pgbouncer", AtRest::None, "docs/measure/proxies.md"),
        ("tls1.3-p256", AtRest::Gocryptfs, "docs/measure/at-rest.md"),
    ] {
        let text = all("postgres", path, at_rest);
        assert!(text.contains(page) && text.contains("no template"), "{path}: {text}");
    }
}

#[test]
fn names_are_those_of_the_url() {
    let text = all_at(
        "postgres",
        "proxy",
        AtRest::None,
        Some(
            "postgres://o%22ps@[2001:db8::7]:6000/my%20shop?sslmode=verify-full&sslrootcert=/home/me/ca%26.pem",
        ),
    );
    for line in [
        "server = \"postgres://o%22ps@[2001:db8::7]:6000/my%20shop?sslrootcert=/home/me/ca%26.pem\"",
        "name = \"o\\\"ps\"",
        "postgres://o%22ps@/my%20shop?host=/run/ciphertoll-proxy&port=6432",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let url = "mysql://ops@db.mine?ssl-mode=VERIFY_IDENTITY&ssl-cert=/c.pem&ssl-key=/k.pem";
    let text = all_at("mariadb", "tls1.3-p256+mtls", AtRest::None, Some(url));
    for line in [
        "mysql://ops@db.mine:3306/?ssl-mode=VERIFY_IDENTITY&ssl-cert=/c.pem&ssl-key=/k.pem\n",
        "ALTER USER 'ops' REQUIRE X509;",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let own = "mongodb://ops@a.mine,b.mine/shop?tls=true&replicaSet=rs";
    assert!(all_at("mongodb", "tls1.3-p256", AtRest::None, Some(own)).contains(own));
    for text in [text, all_at("postgres", "tls1.3-p256", AtRest::None, Some("postgres://ops@db.mine/x"))] {
        assert!(!text.contains("db.example") && !text.contains("shop"), "{text}");
    }
}

#[test]
fn a_url_that_was_measured_names_them_too() {
    let url = "mine=postgres://ops@db.mine/orders?sslmode=verify-full";
    let text = all(url, "tls1.3", AtRest::None);
    assert!(
        text.contains("postgres://ops@db.mine:5432/orders?sslmode=verify-full&sslrootcert=system"),
        "{text}"
    );
}
