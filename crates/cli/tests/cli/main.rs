//! Tests of the program: wrong input, complete runs on real servers, and faults such as killed processes and full disks.

mod at_rest;
mod doctor;
mod documents;
mod end_to_end;
mod examples;
mod faults;
mod killed_anywhere;
mod lab;
mod links;
mod proxies;
mod recorded;
mod replica_set;
mod resumed;
mod runs;
mod servers;
mod settings;
mod support;
mod tde;
mod tde_convert;
mod tde_services;
mod tls_levels;
mod tunnels;
mod url;
mod url_documents;
mod url_files;
mod wrong_input;
