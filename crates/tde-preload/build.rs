//! Compiles the entry points that only C can have: those with a variable number of arguments.

fn main() {
    println!("cargo::rerun-if-changed=src/shim.c");
    cc::Build::new().file("src/shim.c").warnings(true).compile("ciphertoll_tde_shim");
}
