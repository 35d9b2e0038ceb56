//! Every report format over the same findings: what is in it, how it treats names that are made to harm, and its limits.

mod github;
mod html;
mod junit;
mod markdown;
mod pages;
mod same_bytes;
mod sample;
mod sarif;
