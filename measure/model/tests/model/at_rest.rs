//! What encrypts the files, as a factor: what is compared with what, and what cannot be.

use ciphertoll_model::{AtRest, Engine, Plan, Spec, Tde, TdeCipher, TdeTarget};

fn plan(text: &str) -> Plan {
    Plan::new(&Spec::from_toml(text).unwrap(), 7).unwrap()
}

/// Each comparison: what with, then what, as levels of path and at-rest.
fn compared(plan: &Plan) -> Vec<Vec<String>> {
    let told = |&cell: &usize| {
        let treatment = &plan.cells[cell].treatment;
        format!("{} {}", treatment.path, treatment.at_rest)
    };
    let strata = plan.strata.iter();
    strata
        .map(|stratum| std::iter::once(&stratum.baseline).chain(&stratum.treatments).map(told).collect())
        .collect()
}

const GRID: &str = "[[grid]]\nserver = [\"mariadb\"]\nworkload = [\"point-select\"]\n";

#[test]
fn where_only_files_differ_they_are_compared_with_files_in_the_clear() {
    let plan = plan(&format!("{GRID}at-rest = [\"native\", \"none\", \"gocryptfs\"]\npath = [\"plain\"]"));
    assert_eq!(plan.baseline.to_string(), "at-rest=none");
    assert_eq!(compared(&plan), [["plain none", "plain native", "plain gocryptfs"]]);
    assert!(plan.cells[0].id().0.contains("/local/native/point-select/"), "{}", plan.cells[0]);
}

#[test]
fn where_paths_differ_too_both_are_compared() {
    let levels = "at-rest = [\"none\", \"native\"]\npath = [\"plain\", \"tls1.3-p256\"]";
    let both = plan(&format!("{GRID}{levels}"));
    assert_eq!(both.baseline.to_string(), "path=plain");
    assert_eq!(
        compared(&both),
        [
            ["plain none", "tls1.3-p256 none"],
            ["plain native", "tls1.3-p256 native"],
            ["plain none", "plain native"],
            ["tls1.3-p256 none", "tls1.3-p256 native"],
        ]
    );
    let asked = plan(&format!("baseline = \"at-rest=none\"\n{GRID}{levels}"));
    assert_eq!(
        compared(&asked),
        [["plain none", "plain native"], ["tls1.3-p256 none", "tls1.3-p256 native"]]
    );
}

#[test]
fn the_default_says_what_it_said_before() {
    let plan = plan(&format!("{GRID}path = [\"plain\", \"tls1.3-p256\"]"));
    assert_eq!(plan.baseline.to_string(), "path=plain");
    assert!(plan.cells.iter().all(|cell| cell.id().0.contains("/local/none/")));
}

#[test]
fn what_cannot_be_is_skipped_with_its_reason() {
    let reasons = |engine: &str| -> Vec<String> {
        let all = plan(&format!(
            "[[grid]]\nserver = [\"{engine}\"]\nworkload = [\"connect\"]\nat-rest = [\"none\", \"native\", \"as-is\"]\n\
             path = [\"plain\"]"
        ));
        all.skipped.into_iter().map(|skipped| skipped.reason).collect()
    };
    let as_is = "as-is is for servers at a URL: name a level of at-rest";
    let cases = [
        ("mariadb", None),
        ("mysql", None),
        ("postgres", Some("PostgreSQL does not encrypt its files itself")),
        ("mongodb", Some("MongoDB encrypts its files in its Enterprise edition only")),
        ("ferretdb", Some("FerretDB does not encrypt its files itself")),
    ];
    for (engine, native) in cases {
        let reasons = reasons(engine);
        let beginnings: Vec<&str> = native.into_iter().chain([as_is]).collect();
        assert_eq!(reasons.len(), beginnings.len(), "{reasons:?}");
        assert!(
            reasons.iter().zip(beginnings).all(|(reason, words)| reason.starts_with(words)),
            "{reasons:?}"
        );
    }
    for engine in Engine::ALL {
        assert_eq!(AtRest::Gocryptfs.impossible(engine), None);
    }
}

#[test]
fn disks_at_a_url_are_not_ours_to_encrypt() {
    let there = "[[grid]]\nserver = [\"there=mysql://a@h/b\"]\nworkload = [\"connect\"]\npath = [\"plain\"]\n\
                 at-rest = [\"none\", \"native\", \"gocryptfs\"]";
    let plan = plan(there);
    assert_eq!(plan.cells.len(), 1);
    assert_eq!(plan.skipped.len(), 2, "{:?}", plan.skipped);
    assert!(
        plan.skipped.iter().all(|skipped| skipped.reason.contains("the storage of there cannot be changed"))
    );
}

#[test]
fn a_library_has_a_cipher_and_a_target() {
    let parsed = |text: &str| text.parse::<AtRest>();
    let (cipher, target) = (TdeCipher::Aes128, TdeTarget::Vaes);
    let both = AtRest::Tde(Tde { cipher, target });
    assert_eq!(parsed("tde+cipher=aes128+target=vaes").unwrap(), both);
    assert_eq!(parsed("tde+target=vaes+cipher=aes128").unwrap(), both);
    assert_eq!(both.to_string(), "tde+cipher=aes128+target=vaes");
    for level in ["tde", "tde+cipher=null", "tde+target=portable", "tde+target=aesni"] {
        assert_eq!(parsed(level).unwrap().to_string(), level);
    }
    for wrong in [
        "tde+cipher=aes256",
        "tde+cipher=null+target=vaes",
        "tde+target=vaes+cipher=null",
        "tde+target=vaes+target=aesni",
        "tde+cipher",
        "native+cipher=aes128",
        "gocryptfs+target=vaes",
    ] {
        let error = parsed(wrong).unwrap_err().to_string();
        assert!(error.contains("takes no modifier"), "{wrong}: {error}");
    }
    assert!(parsed("tdee").unwrap_err().to_string().contains("did you mean \"tde\"?"));
}

#[test]
fn a_library_without_a_cipher_encrypts_nothing_and_is_compared_with_none() {
    let null: AtRest = "tde+cipher=null".parse().unwrap();
    assert!(!null.encrypts() && !AtRest::None.encrypts());
    assert!(AtRest::Tde(Tde::default()).encrypts() && AtRest::Native.encrypts());
    let plan = plan(
        "[[grid]]\nserver = [\"postgres\"]\nworkload = [\"point-select\"]\npath = [\"plain\"]\n\
         at-rest = [\"none\", \"tde\", \"tde+cipher=null\"]",
    );
    assert_eq!(compared(&plan), [["plain none", "plain tde", "plain tde+cipher=null"]]);
}

#[test]
fn a_library_is_for_postgres() {
    for engine in Engine::ALL {
        let reason = AtRest::Tde(Tde::default()).impossible(engine);
        assert_eq!(reason.is_none(), engine == Engine::Postgres, "{reason:?}");
    }
    let without: AtRest = "tde+cipher=aes128".parse().unwrap();
    assert!(without.impossible(Engine::Postgres).is_some_and(|reason| reason.contains("at-rest=tde")));
}
