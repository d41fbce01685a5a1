//! URLs, and the stores that they name.

use object_store::ObjectStore;
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

/// A URL's store; `None` for the local file system.
pub(crate) struct Opened {
    pub(crate) store: Option<Arc<dyn ObjectStore>>,
    /// What the names of all files of the store begin with.
    pub(crate) base: String,
    pub(crate) path: PathBuf,
}

/// Tells URLs apart. The error is for people.
pub(crate) fn open(url: &str) -> Result<Opened, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if scheme == "file" {
        return local(url).map(|path| Opened { store: None, base: crate::local::BASE.to_owned(), path });
    }
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let store = match scheme {
        _ if bucket.is_empty() => Err(format!("a bucket is missing: write {scheme}://bucket/prefix")),
        "s3" => s3(bucket),
        "gs" => gcs(bucket),
        "az" => azure(bucket),
        _ => Err("backups go to folders, and to file://, s3://, gs:// and az://".to_owned()),
    }?;
    // Names are taken as they are: in keys of objects nothing is escaped.
    let base = format!("{scheme}://{bucket}");
    let path = format!("{base}/{}", prefix.trim_matches('/'));
    Ok(Opened { store: Some(store), base, path: path.trim_end_matches('/').into() })
}

fn local(url: &str) -> Result<PathBuf, String> {
    let usage = "write file:///folder, with an absolute path behind two slashes";
    let parsed = Url::parse(url).map_err(|error| format!("{error}: {usage}"))?;
    let path = parsed.to_file_path().map_err(|()| usage.to_owned())?;
    let path = path.to_str().ok_or("the path is no UTF-8, which a URL's has to be")?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(format!("? and # in a path are written as %3F and %23 in a URL: {usage}"));
    }
    Ok(format!("{}{}", crate::local::BASE, path.trim_end_matches('/')).into())
}

/// The error for a store that was left out.
#[cfg(not(all(feature = "s3", feature = "gcs", feature = "azure")))]
fn left_out(scheme: &str, feature: &str) -> Result<Arc<dyn ObjectStore>, String> {
    Err(format!(
        "{scheme}:// was not built in: build gannet with `--features {feature}`, or with `--features cloud` for all stores"
    ))
}

#[cfg(feature = "network")]
mod network {
    use object_store::{BackoffConfig, RetryConfig};
    use std::time::Duration;

    /// A request that fails is tried again for so long: several times as long as one may take, so that one that stalls is tried again.
    const TRIED_FOR: Duration = Duration::from_secs(300);

    pub(super) fn retry() -> RetryConfig {
        // Where somebody has chosen another one before, that is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        RetryConfig { backoff: BackoffConfig::default(), max_retries: 10, retry_timeout: TRIED_FOR }
    }

    /// Time for one request, which may have a long part: over a slow line these take their time.
    pub(super) const REQUEST: &str = "120 seconds";

    /// What is wrong with the settings from the environment.
    pub(super) fn unusable(variables: &str, error: &object_store::Error) -> String {
        format!("{}: set {variables} in the environment", crate::error::words(error))
    }
}

#[cfg(feature = "s3")]
fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>, String> {
    use object_store::ClientConfigKey;
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
    let builder = AmazonS3Builder::from_env().with_config(timeout, network::REQUEST);
    let store = builder.with_bucket_name(bucket).with_retry(network::retry()).build();
    store.map(|store| Arc::new(store) as _).map_err(|error| {
        network::unusable(
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, for other providers, AWS_ENDPOINT",
            &error,
        )
    })
}

#[cfg(not(feature = "s3"))]
fn s3(_bucket: &str) -> Result<Arc<dyn ObjectStore>, String> {
    left_out("s3", "s3")
}

#[cfg(feature = "gcs")]
fn gcs(bucket: &str) -> Result<Arc<dyn ObjectStore>, String> {
    use object_store::ClientConfigKey;
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
    let timeout = GoogleConfigKey::Client(ClientConfigKey::Timeout);
    let builder = GoogleCloudStorageBuilder::from_env().with_config(timeout, network::REQUEST);
    let store = builder.with_bucket_name(bucket).with_retry(network::retry()).build();
    store.map(|store| Arc::new(store) as _).map_err(|error| {
        network::unusable("GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS", &error)
    })
}

#[cfg(not(feature = "gcs"))]
fn gcs(_bucket: &str) -> Result<Arc<dyn ObjectStore>, String> {
    left_out("gs", "gcs")
}

#[cfg(feature = "azure")]
fn azure(container: &str) -> Result<Arc<dyn ObjectStore>, String> {
    use object_store::ClientConfigKey;
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
    let timeout = AzureConfigKey::Client(ClientConfigKey::Timeout);
    let builder = MicrosoftAzureBuilder::from_env().with_config(timeout, network::REQUEST);
    let store = builder.with_container_name(container).with_retry(network::retry()).build();
    store.map(|store| Arc::new(store) as _).map_err(|error| {
        network::unusable("AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY", &error)
    })
}

#[cfg(not(feature = "azure"))]
fn azure(_container: &str) -> Result<Arc<dyn ObjectStore>, String> {
    left_out("az", "azure")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(url: &str) -> String {
        open(url).map(|opened| opened.path).unwrap_err()
    }

    #[test]
    fn urls_of_folders_are_absolute_paths() {
        for (url, path) in [
            ("file:///backups", "file:///backups"),
            ("file:///backups/", "file:///backups"),
            ("file:///my%20backups/of%23shop", "file:///my backups/of#shop"),
            ("file://localhost/backups", "file:///backups"),
        ] {
            assert_eq!(open(url).unwrap().path, PathBuf::from(path), "{url}");
        }
        for url in ["file://host/backups", "file:///backups?x=1", "file:///backups#1"] {
            assert!(complaint(url).contains("file:///folder"), "{url}: {}", complaint(url));
        }
    }

    #[test]
    fn stores_that_are_not_known_are_said_so() {
        assert!(complaint("http://host/backups").contains("s3://"));
        assert!(complaint("s3:///backups").contains("a bucket is missing"));
        #[cfg(not(feature = "s3"))]
        assert!(complaint("s3://bucket/backups").contains("--features s3"));
        #[cfg(not(feature = "gcs"))]
        assert!(complaint("gs://bucket").contains("--features gcs"));
        #[cfg(not(feature = "azure"))]
        assert!(complaint("az://container").contains("--features azure"));
    }
}
