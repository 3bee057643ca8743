package waypost.interop;

import io.grpc.ChannelCredentials;
import io.grpc.TlsChannelCredentials;
import io.grpc.util.AdvancedTlsX509KeyManager;
import io.grpc.util.AdvancedTlsX509TrustManager;
import io.grpc.xds.XdsCredentialsProvider;
import java.io.File;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * The channel credentials {@code tls} of a bootstrap file with the files that it names (gRFC A65), read again
 * while they are used. What grpc-java has under that name reads no file: it believes what the JVM believes
 * and shows no certificate. Of two providers the one of higher priority counts; {@code META-INF/services}
 * names this one.
 */
public final class TlsFromFiles extends XdsCredentialsProvider {
  private static final String REFRESH_DEFAULT = "600s";

  private static final ScheduledExecutorService READER =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "tls-files");
            thread.setDaemon(true);
            return thread;
          });

  @Override
  protected ChannelCredentials newChannelCredentials(Map<String, ?> config) {
    Map<String, ?> known = config == null ? Map.of() : config;
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    Object refresh = known.get("refresh_interval");
    long refreshMillis = Duration.parse("PT" + (refresh == null ? REFRESH_DEFAULT : refresh)).toMillis();
    File authorities = file(known, "ca_certificate_file");
    File certificate = file(known, "certificate_file");
    File key = file(known, "private_key_file");
    try {
      if (authorities != null) {
        AdvancedTlsX509TrustManager trust = AdvancedTlsX509TrustManager.newBuilder().build();
        trust.updateTrustCredentials(authorities, refreshMillis, TimeUnit.MILLISECONDS, READER);
        tls.trustManager(trust);
      }
      if (certificate != null && key != null) {
        AdvancedTlsX509KeyManager identity = new AdvancedTlsX509KeyManager();
        identity.updateIdentityCredentials(
            certificate, key, refreshMillis, TimeUnit.MILLISECONDS, READER);
        tls.keyManager(identity);
      }
    } catch (IOException | GeneralSecurityException error) {
      throw new IllegalArgumentException("files of tls credentials", error);
    }
    return tls.build();
  }

  private static File file(Map<String, ?> config, String key) {
    Object name = config.get(key);
    return name == null ? null : new File(name.toString());
  }

  @Override
  protected String getName() {
    return "tls";
  }

  @Override
  public boolean isAvailable() {
    return true;
  }

  @Override
  public int priority() {
    // grpc-java's own has 5.
    return 6;
  }
}
