//! The recipes of docs/sidecar/credentials.md, each with a stand-in that prints what the real command prints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ciphertoll_proxy::Config;

use crate::Case;
use crate::cases::one;
use crate::credentials::psql;
use crate::fixture::{Fixture, PORT};
use crate::operations::{await_that, settings};
use crate::stand_in::StandIn;

pub(crate) const CASES: [Case; 1] = [("the recipes for clouds and Vault work", recipes)];

/// What a command prints, as parts of a shell script with the password `$secret` and the role `$user`.
struct Output {
    program: &'static str,
    /// `HOST` and `PORT` stand for the server's.
    arguments: &'static str,
    /// The password; `$random` is another one each time.
    secret: &'static str,
    print: &'static str,
}

const RDS: Output = Output {
    program: "aws",
    arguments: "rds generate-db-auth-token --hostname HOST --port PORT --username app",
    secret: "HOST:PORT/?Action=connect&DBUser=app&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIA%2F20261130\
             %2Feu-west-1%2Frds-db%2Faws4_request&X-Amz-Date=20261130T100000Z&X-Amz-Expires=900\
             &X-Amz-SignedHeaders=host&X-Amz-Signature=$random",
    print: "echo \"$secret\"",
};

const OUTPUTS: [Output; 6] = [
    // For the user `*`, and for the one of the recipe.
    RDS,
    RDS,
    Output {
        program: "aws",
        arguments: "secretsmanager get-secret-value --secret-id shop/app --query SecretString --output text",
        secret: "$random",
        print: "echo \"{\\\"username\\\":\\\"$user\\\",\\\"password\\\":\\\"$secret\\\",\\\"engine\\\":\\\"postgres\\\",\\\"port\\\":5432}\"",
    },
    Output {
        program: "az",
        arguments: "account get-access-token --resource-type oss-rdbms --output json",
        secret: "eyJ0eXAi.$(head -c 1200 /dev/zero | tr '\\0' x).$random",
        print: "cat << END\n{\n  \"accessToken\": \"$secret\",\n  \"expiresOn\": \"$(date '+%Y-%m-%d %H:%M:%S.000000')\",\n  \
                \"expires_on\": $(( $(date +%s) + 3600 )),\n  \"subscription\": \"0\",\n  \"tenant\": \"0\",\n  \
                \"tokenType\": \"Bearer\"\n}\nEND",
    },
    Output {
        program: "gcloud",
        arguments: "sql generate-login-token",
        secret: "ya29.$random",
        print: "echo \"$secret\"",
    },
    Output {
        program: "vault",
        arguments: "read -format=json database/creds/app",
        secret: "A1a-$random",
        print: "cat << END\n{\n  \"request_id\": \"1f\",\n  \"lease_id\": \"database/creds/app/x\",\n  \
                \"lease_duration\": 3600,\n  \"renewable\": true,\n  \"data\": {\n    \"password\": \"$secret\",\n    \
                \"username\": \"$user\"\n  },\n  \"warnings\": null\n}\nEND",
    },
];

/// The TOML of the page.
fn blocks() -> Vec<Config> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sidecar/credentials.md");
    let page = fs::read_to_string(page).expect("it is there");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(|block| Config::from_toml(block).unwrap_or_else(|error| panic!("{error}: {block}"))).collect()
}

fn recipes(fixture: &mut Fixture) {
    let mut left: Vec<&Output> = OUTPUTS.iter().collect();
    for config in blocks() {
        let Some(user) = config.user.first() else { continue };
        let program = user.password_command.first().map(String::as_str).unwrap_or_default();
        if program.starts_with('/') {
            // The example of the settings.
            continue;
        }
        assert!(!left.is_empty(), "a recipe without a stand-in: {program}");
        let output = left.remove(0);
        assert_eq!(output.program, program, "the recipes are in the order of the page");
        let name = if user.name == "*" { "app" } else { &user.name };
        follow(fixture, name, &config.to_toml(), output);
    }
    assert!(left.is_empty(), "{} stand-ins without a recipe", left.len());
}

/// Runs a proxy with a recipe: a client of this user is served.
fn follow(fixture: &mut Fixture, name: &str, recipe: &str, output: &Output) {
    let Output { program, arguments, secret, print } = output;
    // If the command chooses the name, it differs from the configured one.
    let is_chosen = print.contains("$user");
    let user = if is_chosen { "v-token-x" } else { name };
    let mut control = fixture.control();
    control.query(&format!("DROP ROLE IF EXISTS \"{user}\"")).expect("no role");
    control.query(&format!("CREATE ROLE \"{user}\" LOGIN IN ROLE toll_scram")).expect("a role");
    let psql = psql(fixture);
    let script = format!(
        "#!/bin/sh\nset -e\n[ \"$*\" = \"{arguments}\" ] || {{ echo \"arguments: $*\" >&2; exit 9; }}\n\
         random=$(od -An -N16 -tx8 /dev/urandom | tr -d ' ')\nuser={user}\nsecret=\"{secret}\"\n\
         echo \"ALTER ROLE \\\"$user\\\" PASSWORD '$secret'\" | {psql}\n\
         echo \"$secret\" >> \"$(dirname \"$0\")/secrets\"\n{print}\n"
    );
    let (host, port) = (fixture.server().server_name().to_string(), fixture.server_port().to_string());
    let script = script.replace("HOST", &host).replace("PORT", &port);
    let stand_in = StandIn::new("");
    fs::write(stand_in.path("new"), script).expect("ours to write");
    fs::set_permissions(stand_in.path("new"), fs::Permissions::from_mode(0o755)).expect("ours to change");
    fs::rename(stand_in.path("new"), stand_in.path(program)).expect("ours to replace");
    let (directory, listen) = fixture.new_directory();
    let (_directory, file) = settings(recipe);
    let (url, mut command) = (fixture.url(""), fixture.program());
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["--listen", &listen, "--server", &url, "--config", &file]);
    command.env("PATH", format!("{}:{path}", stand_in.directory.path().display()));
    let mut proxy = fixture.proxy_by(&mut command, directory, PORT);
    // A test that runs at the same time may hold the script open for writing when it is started first.
    await_that("a client is served", || {
        let client = proxy.try_client_as(name);
        client.is_ok_and(|mut client| one(&mut client, "SELECT session_user") == user)
    });
    let line = proxy.process.await_line("event=password-fetched");
    assert!(!line.contains("expires_unix_s=never"), "{line}");
    assert!(line.contains(&format!("user={name} server_user={user}")), "{line}");
    proxy.process.read_on();
    stand_in.assert_no_secret_in(&proxy.process.log);
}
