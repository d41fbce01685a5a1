//! Whether what a server shows can be explained by what its clients were told, and whether the file behind it is sound.

use crate::ledger::{Ledger, Mark};
use crate::load::{ACCOUNTS, BALANCE, GROUND, KEPT, Transfer, side_row};
use crate::server::{Client, command};
use std::collections::BTreeMap;
use std::path::Path;

type Rows = Vec<Vec<String>>;

fn query(client: &mut Client, sql: &str) -> Result<Rows, String> {
    client.query(sql).map_err(|failure| format!("{sql}: {failure}"))
}

fn compare(what: &str, found: &Rows, expected: &Rows) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let short = |row: Option<&Vec<String>>| {
        row.map(|row| row.iter().map(|value| value.chars().take(40).collect::<String>()).collect::<Vec<_>>())
    };
    let longest = found.len().max(expected.len());
    let at = (0..longest).find(|&at| found.get(at) != expected.get(at)).unwrap_or(longest);
    let (found, expected) = ((found.len(), short(found.get(at))), (expected.len(), short(expected.get(at))));
    Err(format!("{what}: row {at}: found {found:?}, expected {expected:?}"))
}

fn texts<const N: usize>(values: [&dyn ToString; N]) -> Vec<String> {
    values.iter().map(|value| value.to_string()).collect()
}

/// Compares everything that is there with what must be, and tells the ledger what was found.
pub(crate) fn contents(client: &mut Client, ledger: &mut Ledger) -> Result<(), String> {
    let Some(seed) = ledger.seed() else { return Ok(()) };
    let last = last_transactions(client, ledger)?;
    let mut balances = vec![BALANCE; ACCOUNTS as usize];
    let (mut entries, mut totals, mut hits) = (Rows::new(), Rows::new(), BTreeMap::new());
    for (client, &last) in last.iter().enumerate() {
        let mut moved = 0;
        for number in 1..=last {
            let transfer = Transfer::new(seed, client as u64, number);
            let Transfer { debit, credit, amount, place, .. } = transfer;
            *hits.entry(place).or_insert(0) += number;
            balances[debit as usize] -= amount;
            balances[credit as usize] += amount;
            moved += amount;
            if number + KEPT > last {
                entries.push(texts([&client, &number, &debit, &credit, &amount, &transfer.note()]));
            }
        }
        totals.push(texts([&client, &last, &moved]));
    }
    let balances = balances.iter().enumerate().map(|(id, balance)| texts([&id, balance])).collect();
    compare("total", &query(client, "select * from total order by client")?, &totals)?;
    compare("account", &query(client, "select * from account order by id")?, &balances)?;
    compare("entry", &query(client, "select * from entry order by client, number")?, &entries)?;
    by_index(client, &entries)?;
    let hits = hits.iter().map(|(place, hits)| texts([place, hits])).collect();
    compare("ground", &query(client, "select id, hits from ground where hits <> 0 order by id")?, &hits)?;
    let all = query(client, "select count(*), sum(length(stuff)) from ground")?;
    compare("all ground", &all, &vec![texts([&GROUND.0, &(GROUND.0 * GROUND.1)])])?;
    side_tables(client, &last)?;
    for (client, &number) in last.iter().enumerate() {
        ledger.note(Mark::Found { client: client as u64, number });
    }
    Ok(())
}

/// The last transaction of each client; an error where the ledger cannot explain it.
fn last_transactions(client: &mut Client, ledger: &Ledger) -> Result<Vec<u64>, String> {
    let found = query(client, "select last from total order by client")?;
    let last: Vec<u64> = found.iter().filter_map(|row| row[0].parse().ok()).collect();
    if last.len() as u64 != ledger.clients() {
        return Err(format!("{} clients where there were {}", last.len(), ledger.clients()));
    }
    for (client, last) in last.iter().enumerate() {
        let allowed = ledger.allowed(client as u64);
        if !allowed.contains(last) {
            return Err(format!("client {client}: transaction {last} is the last, allowed are {allowed:?}"));
        }
    }
    Ok(last)
}

/// The same rows by way of the secondary index.
fn by_index(client: &mut Client, entries: &Rows) -> Result<(), String> {
    for debit in 0..ACCOUNTS {
        let sql = format!("select client, number from entry where debit = {debit} order by client, number");
        let of_account = entries.iter().filter(|entry| entry[2] == debit.to_string());
        compare(
            "entry by index",
            &query(client, &sql)?,
            &of_account.map(|entry| entry[..2].to_vec()).collect(),
        )?;
    }
    Ok(())
}

fn side_tables(client: &mut Client, last: &[u64]) -> Result<(), String> {
    let names = "select relname from pg_class where relkind = 'r' and relname like 'side%' order by relname";
    let expected = last.iter().enumerate().filter_map(|(client, last)| Some((client, side_row(*last)?)));
    let expected: Vec<(usize, u64)> = expected.collect();
    let tables = expected.iter().map(|(client, _)| vec![format!("side_{client}")]).collect();
    compare("side tables", &query(client, names)?, &tables)?;
    for (owner, row) in expected {
        let rows = query(client, &format!("select id, word from side_{owner}"))?;
        compare("side table", &rows, &vec![texts([&row, &"side"])])?;
    }
    Ok(())
}

/// Checks the structure of a database that nobody has open, tables against indexes included.
pub(crate) fn structure(database: &Path) -> Result<(), String> {
    let mut command = command();
    let checked = command.arg("check").arg(database).output().map_err(|error| error.to_string())?;
    let [said, complaint] = [&checked.stdout, &checked.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    if checked.status.success() {
        return Ok(());
    }
    Err(format!("a check ended with {}: {said}{complaint}", checked.status))
}
