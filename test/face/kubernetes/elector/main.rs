//! An elector with kube-rs: takes and renews the Lease of its second argument until a line arrives on stdin, then releases it.
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use std::time::Duration;
use tokio::io::AsyncBufReadExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let config = kube::Config::new(args[1].parse()?);
    let client = kube::Client::try_from(config)?;
    let lock = LeaseLock::new(
        client,
        "team",
        LeaseLockParams { holder_id: args[3].clone(), lease_name: args[2].clone(), lease_ttl: Duration::from_secs(3) },
    );
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let mut led = false;
    loop {
        let leads = match lock.try_acquire_or_renew().await {
            Ok(LeaseLockResult::Acquired(_)) => true,
            Ok(LeaseLockResult::NotAcquired(_)) => false,
            Err(error) => {
                println!("error {error}");
                false
            }
        };
        if leads != led {
            println!("{} {}", if leads { "leads" } else { "stopped" }, args[3]);
        }
        led = leads;
        tokio::select! {
            _ = tokio::time::sleep(Duration::from_millis(300)) => {}
            _ = lines.next_line() => break,
        }
    }
    lock.step_down().await?;
    println!("stopped {}", args[3]);
    Ok(())
}
